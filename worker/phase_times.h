// Where a step's time went, summed over layers. One struct for the profile, the status page and
// the comparison of a plan with what was measured.
#pragma once
#include <array>
#include <cstddef>
#include <string_view>

#include "base/clock.h"

namespace longhaul {

enum class Phase {
  kEmbed,
  kProject,  // norm, Q, K and V projections, RoPE
  kAppend,   // K and V into the caches
  kAttend,   // own blocks
  kFinish,   // normalisation, output projection
  kFeedForward,
  kTrim,      // freeing of blocks
  kLogits,    // final norm, vocabulary projection
  kPick,      // top-k, sampling, log-probabilities
  kRingWait,  // for other ranks
};
inline constexpr std::size_t kNPhases = 10;

std::string_view name_of(Phase phase);

struct PhaseTimes {
  std::array<double, kNPhases> seconds{};
  double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
};

// Adds the time of its scope to a phase.
class PhaseTimer {
 public:
  PhaseTimer(PhaseTimes& times, Phase phase) : slot_(&times[phase]) {}
  ~PhaseTimer() { *slot_ += watch_.seconds(); }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  double* slot_;
  Stopwatch watch_;
};

}  // namespace longhaul
