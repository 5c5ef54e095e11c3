// The one builder of attention work: whoever has queries and blocks adds them here, and what a
// head's queries see of the blocks is asked of its policy here and nowhere else. So what a policy
// says about seeing (masks, positions in the cache) holds alone and on a ring, in prefill and in
// decode.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/device/device.h"
#include "base/ids.h"
#include "kernels/attention.h"
#include "kernels/tensor.h"
#include "worker/attention/in_cache_sinks.h"
#include "worker/attention/open_items.h"
#include "worker/attention/sliding_items.h"
#include "worker/kv/cache_layout.h"

namespace longhaul {

// Queries of neighbouring KV heads, those of a KV head's group side by side, and the states that
// they add to: of this worker's rows, or of another's that visit.
struct QueryRows {
  Extent kv_heads;                          // whose groups of query heads these are
  std::span<const std::int64_t> positions;  // [n_rows], host memory
  TensorView<float, 3> q;                   // [n_rows, kv_heads x gqa_group, head_dim], after RoPE
  SoftmaxStateView state;                   // [n_rows, kv_heads x gqa_group(, head_dim)]

  // The query heads of one of its KV heads, counted in q.
  Extent heads_of(KvHeadId kv_head) const {
    const std::int64_t gqa_group = q.dim(1) / kv_heads.size();
    const std::int64_t first = (kv_head.value - kv_heads.begin) * gqa_group;
    return {first, first + gqa_group};
  }
};

// Used by one thread; its lists are reused from layer to layer. Local.
class AttentionWork {
 public:
  // The layout must outlive it.
  AttentionWork(const ModelSpec& spec, const CacheLayout& layout, StreamRef stream);

  // Starts an empty list for one layer.
  void begin(LayerId layer);
  // The queries of one KV head in these rows, whose positions ascend, against these blocks: any
  // order, any gaps. Blocks, positions, queries and states stay where they are until run().
  // Where the layout has open blocks: those of all the queries' tokens or none (OpenItems::add),
  // and the others ascend.
  struct Blocks {
    std::span<const KvBlockRef> closed = {};
    std::span<const KvBlockRef> open = {};
    std::optional<BlockTable> table = std::nullopt;  // of the closed ones (HeadCache::table)
  };
  void add(const QueryRows& queries, KvHeadId kv_head, Extent rows, const Blocks& blocks);
  // Some query heads against blocks at whatever positions, with a mask of the caller's.
  void add_seen(const QueryRows& queries, Extent heads, std::span<const KvBlockRef> blocks,
                const AttentionMask& mask);
  // Merges what the list gives into the states, all items in parallel, its sums in this order. May
  // leave the queries of heads with in-cache positions turned back (in_cache_sinks.h): when their
  // layer has such heads, nothing else reads the same QueryRows afterwards.
  void run(SumOrder order);

 private:
  const CacheLayout& layout_;
  StreamRef stream_;
  float sm_scale_;
  LayerId layer_;
  std::vector<AttentionItem> items_;
  InCacheSinks in_cache_sinks_;
  SlidingItems sliding_;
  OpenItems open_;
};

}  // namespace longhaul
