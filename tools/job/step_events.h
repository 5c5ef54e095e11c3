// A worker's link that also logs what the worker was told to do and how long it took: an event for
// each chunk and each long wait, one now and then for tokens that are decoded.
#pragma once
#include <cstdint>

#include "base/clock.h"
#include "cluster/wire/link.h"
#include "cluster/wire/report_board.h"

namespace longhaul {

// Used by one thread. What it is given must outlive it.
class StepEvents final : public WorkerLink {
 public:
  StepEvents(WorkerLink& link, ReportBoard& reports, std::int64_t rank)
      : link_(link), reports_(reports), rank_(rank) {}
  ~StepEvents() override { log_decoded(); }
  StepEvents(const StepEvents&) = delete;
  StepEvents& operator=(const StepEvents&) = delete;

  std::optional<StepCommand> next() override;
  bool has_next() override { return link_.has_next(); }
  void answer(StepResult result) override;

 private:
  void log_wait();
  void log_decoded();

  WorkerLink& link_;
  ReportBoard& reports_;
  std::int64_t rank_;
  std::int64_t n_tokens_ = 0;  // of the command under way
  std::int64_t sequence_ = -1;
  std::string_view kind_;  // empty: no event
  double waited_seconds_ = 0;
  std::int64_t n_decode_steps_ = 0;  // since the last event
  std::int64_t n_decoded_ = 0;
  double decode_seconds_ = 0;
  Clock::time_point decode_logged_ = Clock::now();
};

}  // namespace longhaul
