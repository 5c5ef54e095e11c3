// The part of a layer's attention that needs this worker only: new K and V go into its caches, and
// its queries are attended to its own blocks. The results are partial states; what other ranks'
// blocks add is merged into the same states before they are finished.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/device.h"
#include "kernels/attention.h"
#include "kernels/kv_append.h"
#include "kernels/tensor.h"
#include "worker/batch.h"
#include "worker/kv/cache_layout.h"

namespace longhaul {

// Used by one thread. Its lists are reused from layer to layer.
class OwnBlocks {
 public:
  explicit OwnBlocks(const CacheLayout& layout) : layout_(layout) {}

  // Appends the batch's K and V of one layer to the caches of its segments; k and v are [n_rows,
  // n_kv_heads, head_dim], k after RoPE. Throws kOutOfMemory when the pool has no room; the caches
  // of the batch are then at unequal lengths and can only be dropped.
  void append(StreamRef stream, std::int64_t layer, const Batch& batch,
              const TensorView<const float, 3>& k, const TensorView<const float, 3>& v);

  // Merges into `state` [n_rows, n_heads(, head_dim)] what the own blocks of one layer give for q
  // [n_rows, n_heads, head_dim] at `positions` [n_rows]. One kernel call for all segments and
  // heads. Leaves out sinks that are not at their own positions: in_cache_sinks.h adds them.
  void attend(StreamRef stream, std::int64_t layer, const Batch& batch,
              const TensorView<const float, 3>& q, std::span<const std::int64_t> positions,
              float sm_scale, const SoftmaxStateView& state);

 private:
  const CacheLayout& layout_;
  std::vector<KvAppendItem> append_items_;
  std::vector<std::byte*> append_blocks_;
  std::vector<AttentionItem> attention_items_;
};

}  // namespace longhaul
