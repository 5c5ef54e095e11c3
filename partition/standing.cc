#include "partition/standing.h"

namespace longhaul {

std::optional<Standing> standing_of(const Plan& plan, Rank rank) {
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const auto& stages = plan.replicas[r].stages;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (const auto position = stages[s].ring_position(rank)) {
        return Standing{.replica = static_cast<std::int64_t>(r),
                        .stage = static_cast<std::int64_t>(s),
                        .position = *position};
      }
    }
  }
  return std::nullopt;
}

}  // namespace longhaul
