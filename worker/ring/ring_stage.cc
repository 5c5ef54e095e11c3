#include "worker/ring/ring_stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "partition/standing.h"

namespace longhaul {
namespace {

LayerHomes layer_homes(const Plan& plan, const Stage& stage, LayerId layer) {
  LayerHomes at;
  for (const KvHeadId kv_head : IdRange<KvHeadId>(plan.heads.n_kv_heads())) {
    RingHome home{.home = stage.home_of(layer, kv_head), .positions = {}};
    for (const HomeShare& share : home.home.shares)
      home.positions.push_back(*stage.ring_position(share.rank));
    const KeyWindow window = plan.heads.window(layer, kv_head);
    if (window.is_unlimited() || plan.reproducible) {
      at.retrieval.push_back(kv_head);
    } else {
      at.windowed.push_back(kv_head);
      at.windowed_homes.push_back(home.positions.front());
      at.window = window;
    }
    at.homes.push_back(std::move(home));
  }
  return at;
}

}  // namespace

RingStage::RingStage(const Plan& plan, std::int64_t replica, Rank rank)
    : plan_(&plan), replica_(&plan.replicas.at(static_cast<std::size_t>(replica))) {
  const auto standing = standing_of(plan, rank);
  require(standing && standing->replica == replica,
          fmt::format("rank {} has no place in replica {} of the plan", rank.value, replica));
  stage_ = &standing->stage_of(plan);
  number_ = standing->stage;
  position_ = standing->position;
  for (const LayerId layer : layer_ids()) layers_.push_back(layer_homes(plan, *stage_, layer));
}

bool RingStage::is_home(LayerId layer, KvHeadId kv_head) const {
  const RingHome& home = this->layer(layer).homes[kv_head];
  return std::ranges::find(home.positions, position_) != home.positions.end();
}

}  // namespace longhaul
