#include "worker/ring/ring_stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace longhaul {
namespace {

LayerHomes layer_homes(const Plan& plan, const Stage& stage, const ModelSpec& spec,
                       std::int64_t layer) {
  LayerHomes at;
  for (std::int64_t kv_head = 0; kv_head < spec.n_kv_heads; ++kv_head) {
    Home home = stage.home_of(layer, kv_head);
    for (HomeShare& share : home.shares) share.rank = Rank{*stage.ring_position(share.rank)};
    const KeptKeys kept = kept_keys(spec, plan.roles, layer, kv_head);
    if (kept.all) {
      at.retrieval.push_back(kv_head);
    } else {
      at.windowed.push_back(kv_head);
      at.windowed_homes.push_back(home.shares.front().rank.value);
      at.window = kept;
    }
    at.homes.push_back(std::move(home));
  }
  return at;
}

}  // namespace

RingStage::RingStage(const Plan& plan, std::int64_t replica, Rank rank, const ModelSpec& spec)
    : plan_(&plan), replica_(&plan.replicas.at(static_cast<std::size_t>(replica))) {
  for (std::size_t i = 0; i < replica_->stages.size(); ++i) {
    const Stage& stage = replica_->stages[i];
    if (const auto position = stage.ring_position(rank)) {
      stage_ = &stage;
      number_ = static_cast<std::int64_t>(i);
      position_ = *position;
    }
  }
  require(stage_ != nullptr,
          fmt::format("rank {} has no place in replica {} of the plan", rank.value, replica));
  for (std::int64_t layer = stage_->layers.begin; layer < stage_->layers.end; ++layer) {
    layers_.push_back(layer_homes(plan, *stage_, spec, layer));
  }
}

bool RingStage::is_home(std::int64_t layer, std::int64_t kv_head) const {
  const Home& home = this->layer(layer).homes[static_cast<std::size_t>(kv_head)];
  return std::any_of(home.shares.begin(), home.shares.end(),
                     [&](const HomeShare& share) { return share.rank.value == position_; });
}

}  // namespace longhaul
