// How far a run is, how fast it goes and how long it will take. Observes commands and results; has
// no clock of its own: steps carry their seconds.
#pragma once
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cluster/wire/step.h"

namespace longhaul {

// Seconds of a prefill step of n tokens after h earlier ones: a n + b n (h + n / 2), because each
// token attends to all before it. Least squares over the steps seen, with a, b >= 0.
class PrefillCost {
 public:
  void add(std::int64_t n_tokens, std::int64_t history, double seconds);
  // Of `n_tokens` more after `history`, in any number of steps; 0 while no step was seen.
  double seconds_for(double n_tokens, double history) const;

 private:
  double xx_ = 0, xy_ = 0, yy_ = 0, xs_ = 0, ys_ = 0;  // sums over steps
};

// What a run has to do, in bytes of text: token counts are known only when a group is prepared.
struct ProgressTotals {
  std::vector<std::size_t> group_bytes;  // of each group's documents, in order
  std::int64_t n_requests = 0;
};

// Thread-safe: the engines of several replicas tell one Progress, each in a lane of its own.
class Progress {
 public:
  explicit Progress(ProgressTotals totals) : totals_(std::move(totals)), lanes_(1) {}

  // Before anything is told: how many engines there are.
  void set_lanes(std::size_t n_lanes);

  void group_prepared(std::size_t n_document_tokens);  // the next group
  void sent(const StepCommand& command, std::size_t lane = 0);
  void received(const StepResult& result, std::size_t lane = 0);
  void request_ended(bool ok, std::int64_t n_generated);
  // The prepared documents that are not read whole yet: [tokens read, tokens).
  void set_unread(std::vector<Extent> unread, std::size_t lane = 0);

  // Of what is left; negative while nothing was measured.
  double eta_seconds() const;
  // "documents 3/20  requests 12/100 (1 failed)  prefill 412k tokens, 18.2k/s  ...", without the
  // parts that matter least where the whole does not fit so many columns.
  std::string line(std::size_t width = std::numeric_limits<std::size_t>::max()) const;
  // The same at the end: what was done, and nothing of what is left.
  std::string summary() const;

 private:
  struct Sent {
    bool is_prefill = false;
    std::int64_t n_tokens = 0;
    std::int64_t history = 0;
  };
  struct Lane {
    std::deque<Sent> sent;
    std::unordered_map<SequenceId, std::int64_t> lengths;
    std::vector<Extent> unread;
    std::size_t kv_bytes = 0;
    double prefill_seconds = 0;
    double decode_seconds = 0;
  };
  struct Part {
    std::string text;
    int drop;  // the greatest goes first
  };
  std::vector<Part> parts_locked() const;
  double document_tokens_per_byte() const;
  double eta_locked() const;
  double seconds_of(double Lane::*kind) const;

  mutable std::mutex mutex_;  // guards what follows
  ProgressTotals totals_;
  std::vector<Lane> lanes_;
  PrefillCost cost_;
  std::size_t n_groups_prepared_ = 0;
  std::size_t bytes_prepared_ = 0;
  std::size_t tokens_prepared_ = 0;
  std::int64_t n_prefilled_ = 0;
  std::int64_t n_decoded_ = 0;
  std::int64_t n_ok_ = 0;
  std::int64_t n_failed_ = 0;
  std::int64_t n_generated_ = 0;
};

}  // namespace longhaul
