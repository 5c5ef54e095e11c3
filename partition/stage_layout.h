// Which ranks and which layers make the stages of one replica. Internal to partition/. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "partition/make_plan.h"
#include "partition/place_heads.h"

namespace longhaul {

struct StageLayout {
  std::vector<Rank> ring;
  std::vector<std::int64_t> token_share;
  Extent layers;
};

// Cuts `ranks` into n_stages rings by speed, layers in proportion to the rings' speeds.
std::vector<StageLayout> layout_by_speed(const PlanRequest& request, std::span<const Rank> ranks,
                                         std::int64_t n_stages);

// The same with the layers moved between stages, no further than needed, so that every stage fits;
// nullopt when no distribution of the layers does.
std::optional<std::vector<StageLayout>> layout_that_fits(const PlanRequest& request,
                                                         std::span<const Rank> ranks,
                                                         std::int64_t n_stages);

// What a stage's heads ask and what room its ranks have.
PlacementArgs placement_args(const PlanRequest& request, const StageLayout& stage);

}  // namespace longhaul
