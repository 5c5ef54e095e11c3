// Where the step thread leaves what its rank did and holds, and the control thread takes it for the
// heartbeats, or a status page for who looks at it. Steps pay for it once in a heartbeat at most,
// or once in a second where nobody asks, so that who looks for the first time sees no old figures.
#pragma once
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "cluster/wire/step.h"

namespace longhaul {

// Thread-safe.
class ReportBoard {
 public:
  ReportBoard() = default;
  // From when on a report is taken for old though nobody has asked for another.
  explicit ReportBoard(Clock::duration old_after) : old_after_(old_after) {}

  // Step thread: whether somebody has asked since the last put(), or that one is old. Costs a load
  // and a look at the clock.
  bool is_wanted() const {
    return is_asked_for_.load(std::memory_order_relaxed) || Clock::now() - put_at_ >= old_after_;
  }
  // Step thread.
  void put(RankReport report);
  // The newest; nullopt before the first. Asks for the next.
  std::optional<RankReport> newest();

 private:
  Clock::duration old_after_ = std::chrono::seconds(1);
  Clock::time_point put_at_;  // of the step thread
  std::atomic<bool> is_asked_for_{true};
  std::mutex mutex_;
  std::optional<RankReport> newest_;
};

}  // namespace longhaul
