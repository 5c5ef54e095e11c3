// Where a rank stands in a plan. Pure.
#pragma once
#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "partition/plan.h"

namespace longhaul {

struct Standing {
  std::int64_t replica = 0;  // of Plan::replicas
  std::int64_t stage = 0;    // of the replica
  RingPos position{0};       // in the stage's ring

  const Stage& stage_of(const Plan& plan) const {
    return plan.replicas[static_cast<std::size_t>(replica)].stages[static_cast<std::size_t>(stage)];
  }
};

// nullopt for a rank that has no part in the plan.
std::optional<Standing> standing_of(const Plan& plan, Rank rank);

}  // namespace longhaul
