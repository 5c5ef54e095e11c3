// New K and V of a worker that has all of a batch's keys: into the caches of the batch's sequences.
#pragma once
#include <cstddef>
#include <vector>

#include "base/device/device.h"
#include "kernels/begin_attention.h"
#include "kernels/kv_append.h"
#include "kernels/tensor.h"
#include "worker/attention/close_blocks.h"
#include "worker/batch.h"
#include "worker/kv/cache_layout.h"

namespace longhaul {

// Used by one thread. Its lists are reused from layer to layer.
class OwnBlocks {
 public:
  explicit OwnBlocks(const CacheLayout& layout) : layout_(layout) {}

  // Appends the batch's K and V of one layer to the caches of its segments, and does what else
  // begins attention: `begin` has all but what is appended. Its k and v are [n_rows, n_kv_heads,
  // head_dim]. Open blocks that are full are closed. Throws kOutOfMemory when the pool has no room;
  // the caches of the batch are then at unequal lengths and can only be dropped.
  void append(StreamRef stream, LayerId layer, const Batch& batch, BeginAttentionArgs begin,
              const TensorView<const float, 3>& v);
  // What begins attention of rows whose K and V are appended.
  void begin(StreamRef stream, BeginAttentionArgs begin) const;

 private:
  // Of the blocks that tokens are appended to.
  KvBlockShape shape() const;
  const CacheLayout& layout_;
  std::vector<KvAppendItem> append_items_;
  std::vector<std::byte*> append_blocks_;
  CloseBlocks closing_;
};

}  // namespace longhaul
