// Where the step thread leaves what its rank did and holds, and the control thread takes it for the
// heartbeats. It is asked for, so that steps pay for it once in a heartbeat at most.
#pragma once
#include <atomic>
#include <mutex>
#include <optional>

#include "cluster/wire/step.h"

namespace longhaul {

// Thread-safe.
class ReportBoard {
 public:
  // Step thread: whether somebody has asked since the last put(). Costs one load.
  bool is_wanted() const { return is_wanted_.load(std::memory_order_relaxed); }
  void put(RankReport report);
  // The newest; nullopt before the first. Asks for the next.
  std::optional<RankReport> newest();

 private:
  std::atomic<bool> is_wanted_{true};
  std::mutex mutex_;
  std::optional<RankReport> newest_;
};

}  // namespace longhaul
