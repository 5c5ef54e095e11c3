// A worker's stage as its ring sees it: what the plan says of heads and homes, by ring position.
#pragma once
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/indexed_vector.h"
#include "model/heads/head_table.h"
#include "partition/homes.h"
#include "partition/plan.h"

namespace longhaul {

// Where the blocks of a KV head live.
struct RingHome {
  Home home;                       // as the plan has it, by rank of the job
  std::vector<RingPos> positions;  // of each of its shares

  RingPos of_block(std::int64_t block) const { return positions[share_of_block(home, block)]; }
  bool is_split() const { return positions.size() > 1; }
};

// One layer's KV heads.
struct LayerHomes {
  IndexedVector<KvHeadId, RingHome> homes;
  // Those whose new blocks pass all ranks, ascending: that keep every token, or all in a
  // reproducible plan.
  std::vector<KvHeadId> retrieval;
  std::vector<KvHeadId> windowed;       // the others
  std::vector<RingPos> windowed_homes;  // of each of them
  KeyWindow window;                     // what they keep, all alike
};

// Immutable.
class RingStage {
 public:
  // Throws kInvalidArgument when the rank has no place in that replica.
  RingStage(const Plan& plan, std::int64_t replica, Rank rank);

  const Plan& plan() const { return *plan_; }
  const Stage& stage() const { return *stage_; }
  const Replica& replica() const { return *replica_; }
  std::int64_t number() const { return number_; }  // of the stage in its replica
  bool is_first() const { return number_ == 0; }
  bool is_last() const { return number_ + 1 == static_cast<std::int64_t>(replica_->stages.size()); }
  RingPos position() const { return position_; }  // of this rank
  std::int64_t n_ranks() const { return stage_->ring.n(); }
  std::int64_t block_size() const { return plan_->kv.block_size; }
  // Of d_ff and of the vocabulary: what this rank computes in decode.
  Extent ffn_slice() const { return stage_->ffn_slice[position_]; }
  Extent vocab_slice() const { return stage_->vocab_slice[position_]; }

  IdRange<LayerId> layer_ids() const { return IdRange<LayerId>(stage_->layers); }
  const LayerHomes& layer(LayerId layer) const {
    return layers_[static_cast<std::size_t>(layer.value - stage_->layers.begin)];
  }
  // Who stores the token: the home of its block.
  RingPos home_of(LayerId layer, KvHeadId kv_head, TokenPos position) const {
    return this->layer(layer).homes[kv_head].of_block(position.value / block_size());
  }
  // Whether this rank stores blocks of the head.
  bool is_home(LayerId layer, KvHeadId kv_head) const;

 private:
  const Plan* plan_;
  const Replica* replica_;
  const Stage* stage_ = nullptr;
  std::int64_t number_ = -1;
  RingPos position_;
  std::vector<LayerHomes> layers_;  // [layers of the stage]
};

}  // namespace longhaul
