// Which ranks and which layers make the stages of one replica. Internal to partition/. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/indexed_vector.h"
#include "partition/head_needs.h"
#include "partition/make_plan.h"
#include "partition/place_heads.h"

namespace longhaul {

struct StageLayout {
  IndexedVector<RingPos, Rank> ring;
  IndexedVector<RingPos, std::int64_t> token_share;
  Extent layers;
  std::int64_t transfer_bytes = 0;  // of each rank (partition/transfer_memory.h)
};

// Lays out stages for one request; what every question needs again is counted once. The request
// must outlive it.
class StagePlanner {
 public:
  explicit StagePlanner(const PlanRequest& request);

  // Cuts `ranks` into n_stages rings by speed, layers in proportion to the rings' speeds.
  std::vector<StageLayout> by_speed(std::span<const Rank> ranks, std::int64_t n_stages) const;

  // The same with the layers moved between stages, no further than needed, so that every stage
  // fits; nullopt when no distribution of the layers does.
  std::optional<std::vector<StageLayout>> that_fits(std::span<const Rank> ranks,
                                                    std::int64_t n_stages) const;

  // What a stage's heads ask and what room its ranks have.
  PlacementArgs placement_args(const StageLayout& stage) const;
  // Whether a stage with this ring fits if it has these layers.
  bool fits(const StageLayout& stage, Extent layers) const;

 private:
  IndexedVector<RingPos, std::int64_t> room(const StageLayout& stage, Extent layers) const;
  std::optional<std::vector<StageLayout>> with_moved_layers(std::vector<StageLayout> stages) const;

  const PlanRequest& request_;
  HeadNeeds needs_;
  std::vector<LayerDemand> demand_;  // [n_layers]
};

}  // namespace longhaul
