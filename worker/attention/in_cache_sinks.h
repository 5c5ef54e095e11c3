// Attention of streaming heads to sinks that have moved up (StreamingLLM, Xiao et al. 2023, arXiv
// 2309.17453, section 3.2): positions count inside the cache, so when tokens between the sinks and
// the recent ones are evicted, the sinks come closer.
//
// RoPE scores depend on differences of positions only. With a full cache of sink + recent tokens,
// the query's own included, the query stands at c = sink + recent - 1 in it: recent keys keep their
// true distance, and sink key j, cached as rotated at j, must meet the query rotated at c. So no
// key is kept unrotated and none is ever rotated again: recent keys are attended to with the query
// at its own position p (own_blocks.h), and what has left the recent ones, j < sink and p - j >=
// recent, here with the query turned back by p - min(p, c). Both add to the same softmax state.
//
//   sink 2, recent 3, query p = 7:     position  0 1 . . . 5 6 7
//                                      in cache  0 1       2 3 4     c = 4, turned back by 3
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/device.h"
#include "kernels/attention.h"
#include "kernels/device_memory.h"
#include "kernels/tensor.h"
#include "model/model_spec.h"
#include "model/rope_frequencies.h"
#include "worker/batch.h"
#include "worker/kv/cache_layout.h"

namespace longhaul {

// Used by one thread; the layout must outlive it. Local.
class InCacheSinks {
 public:
  InCacheSinks(const ModelSpec& spec, const CacheLayout& layout);

  // Merges into `state` [n_rows, n_heads(, head_dim)] what the sinks of the layer's heads with
  // in-cache positions give for q [n_rows, n_heads, head_dim], rotated at `positions` [n_rows].
  // Leaves q turned back: nothing else of the layer may read it afterwards. Does nothing for a
  // layer without such heads.
  void attend(StreamRef stream, std::int64_t layer, const Batch& batch,
              const TensorView<float, 3>& q, std::span<const std::int64_t> positions,
              float sm_scale, const SoftmaxStateView& state);

 private:
  void set_angles(StreamRef stream, std::span<const std::int64_t> positions,
                  const AttentionMask& mask);
  void add_items(const BatchSegment& segment, std::int64_t layer, std::int64_t kv_head,
                 std::int64_t gqa_group, const TensorView<float, 3>& q,
                 std::span<const std::int64_t> positions, const SoftmaxStateView& state);

  const CacheLayout& layout_;
  RopeFrequencies frequencies_;
  // Of the last call; kept while positions stay the same, from layer to layer.
  std::vector<std::int64_t> positions_;
  DeviceTensor<float, 2> cos_, sin_;  // [n_rows or more, head_dim / 2], of the turn back
  std::vector<std::int64_t> turns_;
  std::vector<std::int64_t> sink_positions_;  // [n_rows]: p - recent, the last sink key to be seen
  std::vector<KvBlockRef> blocks_;
  std::vector<AttentionItem> items_;
};

}  // namespace longhaul
