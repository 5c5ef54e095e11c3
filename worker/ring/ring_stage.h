// A worker's stage as its ring sees it: what the plan says of heads and homes, by ring position.
#pragma once
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/model_spec.h"
#include "partition/homes.h"
#include "partition/kept_keys.h"
#include "partition/plan.h"

namespace longhaul {

// One layer's KV heads.
struct LayerHomes {
  std::vector<Home> homes;                   // [n_kv_heads]; Rank is the ring position
  std::vector<std::int64_t> retrieval;       // KV heads that keep every token, ascending
  std::vector<std::int64_t> windowed;        // the others
  std::vector<std::int64_t> windowed_homes;  // ring position of each of them
  KeptKeys window;                           // what they keep
};

// Immutable.
class RingStage {
 public:
  // Throws kInvalidArgument when the rank has no place in that replica.
  RingStage(const Plan& plan, std::int64_t replica, Rank rank, const ModelSpec& spec);

  const Plan& plan() const { return *plan_; }
  const Stage& stage() const { return *stage_; }
  const Replica& replica() const { return *replica_; }
  std::int64_t number() const { return number_; }  // of the stage in its replica
  bool is_first() const { return number_ == 0; }
  bool is_last() const { return number_ + 1 == static_cast<std::int64_t>(replica_->stages.size()); }
  std::int64_t position() const { return position_; }  // of this rank in the ring
  std::int64_t n_ranks() const { return static_cast<std::int64_t>(stage_->ring.size()); }
  std::int64_t block_size() const { return plan_->kv.block_size; }

  const LayerHomes& layer(std::int64_t layer) const {
    return layers_[static_cast<std::size_t>(layer - stage_->layers.begin)];
  }
  // Ring position that stores the block.
  std::int64_t home_of(std::int64_t layer, std::int64_t kv_head, std::int64_t block) const {
    return home_of_block(this->layer(layer).homes[static_cast<std::size_t>(kv_head)], block).value;
  }
  // Whether this rank stores blocks of the head.
  bool is_home(std::int64_t layer, std::int64_t kv_head) const;

 private:
  const Plan* plan_;
  const Replica* replica_;
  const Stage* stage_ = nullptr;
  std::int64_t number_ = -1;
  std::int64_t position_ = -1;
  std::vector<LayerHomes> layers_;
};

}  // namespace longhaul
