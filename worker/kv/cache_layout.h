// Which policy caches which head of the layers that a worker serves, and in which order a layer's
// heads are handled. Heads are named in their published order everywhere; only the order of work
// groups them (retrieval heads first), so no weight is ever permuted.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/attention.h"
#include "kernels/kv_block.h"
#include "model/heads/head_table.h"

namespace longhaul {

// A window in the kernels' words: the one place where they are made from a policy.
AttentionMask attention_mask(const KeyWindow& window);

class CacheLayout {
 public:
  // `layers` of the model, whose heads the table names. Throws kInvalidArgument for layers that the
  // table has not, kUnsupported for heads that cannot be run.
  CacheLayout(const HeadTable& heads, Extent layers, const KvBlockShape& shape);

  const HeadTable& heads() const { return heads_; }
  Extent layers() const { return layers_; }
  std::int64_t n_kv_heads() const { return heads_.n_kv_heads(); }
  IdRange<LayerId> layer_ids() const { return IdRange<LayerId>(layers_); }
  IdRange<KvHeadId> kv_head_ids() const { return IdRange<KvHeadId>(n_kv_heads()); }
  const KvBlockShape& shape() const { return shape_; }
  // Whether the newest tokens lie in open blocks, until they fill one (SequenceCache).
  bool has_open_blocks() const { return shape_.quantises_groups(); }
  const HeadPolicy& policy(LayerId layer, KvHeadId kv_head) const {
    return heads_.at(layer, kv_head);
  }
  KeyWindow window(LayerId layer, KvHeadId kv_head) const { return heads_.window(layer, kv_head); }
  // What the head's queries see.
  AttentionMask mask(LayerId layer, KvHeadId kv_head) const {
    return attention_mask(window(layer, kv_head));
  }
  // Whether its queries meet sinks at positions in the cache.
  bool is_in_cache(LayerId layer, KvHeadId kv_head) const {
    return sink_positions_of(policy(layer, kv_head)) == SinkPositions::kInCache;
  }
  // Whether the head keeps a key for what its window has left behind.
  bool leaves_rest(LayerId layer, KvHeadId kv_head) const {
    return policy(layer, kv_head).rest != Rest::kNothing;
  }
  // Whether its queries may see every token that it keeps: retrieval heads, and those that choose
  // tokens.
  bool sees_all(LayerId layer, KvHeadId kv_head) const {
    return window(layer, kv_head).is_unlimited();
  }
  // The layer's KV heads in order of work: a permutation of kv_head_ids().
  std::span<const KvHeadId> order(LayerId layer) const {
    return {order_.data() + (layer.value - layers_.begin) * n_kv_heads(),
            static_cast<std::size_t>(n_kv_heads())};
  }

 private:
  HeadTable heads_;
  Extent layers_;
  KvBlockShape shape_;
  std::vector<KvHeadId> order_;  // [layers, n_kv_heads]
};

}  // namespace longhaul
