// What a rank is doing right now, told with every heartbeat, so that a hang is named instead of
// suffered: "rank 3 on node17: step 812, layer 12, waiting for rank 2 since 41 s".
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace longhaul {

// Numbered because they travel; never renumber.
enum class Activity : std::uint8_t {
  kStarting = 0,
  kIdle = 1,  // waiting for a command
  kComputing = 2,
  kWaiting = 3,  // for data of `peer`
  kLoading = 4,  // weights
  kSaving = 5,
};
std::string_view name_of(Activity activity);

struct PhaseReport {
  Activity activity = Activity::kStarting;
  std::int64_t step = -1;
  LayerId layer;
  std::int64_t hop = -1;      // of the ring
  Rank peer;                  // that is waited for
  std::int64_t since_ms = 0;  // how long this phase has lasted
  bool operator==(const PhaseReport&) const = default;
};

// "step 812, layer 12, hop 1: waiting for rank 2 since 41 s"
std::string to_text(const PhaseReport& phase);

// Where the step thread writes its phase and the control thread reads it. Lock-free: a reader may
// see a mixture of two phases that follow each other, which is good enough for a message to people.
class PhaseBoard {
 public:
  PhaseBoard();
  void enter(Activity activity, Rank peer = {});  // keeps step, layer and hop
  void set_step(std::int64_t step);               // and clears layer and hop
  void set_layer(LayerId layer);
  void set_hop(std::int64_t hop);
  PhaseReport read() const;

 private:
  void touch();
  std::atomic<Activity> activity_{Activity::kStarting};
  std::atomic<std::int64_t> step_{-1};
  std::atomic<std::int64_t> layer_{-1};
  std::atomic<std::int64_t> hop_{-1};
  std::atomic<std::int64_t> peer_{-1};
  std::atomic<std::int64_t> since_ns_{0};  // monotonic
};

}  // namespace longhaul
