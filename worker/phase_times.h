// Where a step's time went, summed over layers. One struct for the profile, the status page and
// the comparison of a plan with what was measured.
#pragma once
#include <array>
#include <cstddef>
#include <string_view>

namespace longhaul {

enum class Phase {
  kEmbed,
  kProject,  // norm, Q, K and V projections; on rings RoPE
  kAppend,   // K and V into the caches; alone RoPE
  kAttend,   // own blocks
  kFinish,   // normalisation, output projection
  kFeedForward,
  kTrim,      // freeing of blocks
  kLogits,    // final norm, vocabulary projection
  kPick,      // top-k, sampling, log-probabilities
  kRingWait,  // for other ranks
  kWhole,     // decode steps that a GPU does as a whole (base/device/step_graph.h)
};
inline constexpr std::size_t kNPhases = 11;

std::string_view name_of(Phase phase);

struct PhaseTimes {
  std::array<double, kNPhases> seconds{};
  double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
};

}  // namespace longhaul
