// In decode: KV heads whose blocks lie with several ranks of the ring. Every home attends to its
// own blocks; here these partial results become parts of one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/copy_rows.h"
#include "kernels/device_tensor.h"
#include "kernels/softmax_state.h"
#include "worker/attention/attention_work.h"
#include "worker/layer_compute.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_stage.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it.
class SplitHeads {
 public:
  SplitHeads(LayerCompute& compute, const RingStage& stage, RingContext& context);

  bool has_any(LayerId layer) const { return !split(layer).empty(); }

  // Both take this rank's heads of a layer in runs of neighbours, the same rows in each, and do
  // nothing in a layer without split heads. Collective over the ring.

  // Before states are finished: m and l of a split head's states become those of all its homes'
  // keys, so that each home's finished output is its part of a sum.
  void share_scales(LayerId layer, std::span<const QueryRows> own);
  // Products with weights of integers quantise each KV head's outputs together, and parts of them
  // cannot be quantised apart: adds up the parts. A head's first home goes on with the sum, the
  // others with zeros. After states are finished.
  void join_outputs(LayerId layer, std::span<const QueryRows> own);

 private:
  const std::vector<KvHeadId>& split(LayerId layer) const {
    return split_[static_cast<std::size_t>(layer.value - stage_.stage().layers.begin)];
  }
  std::int64_t n_split_queries(LayerId layer) const {
    return static_cast<std::int64_t>(split(layer).size()) * compute_.spec().gqa_group();
  }
  template <typename Body>
  void for_each_part(LayerId layer, std::span<const QueryRows> own, const Body& body) const;
  template <typename Body>
  void for_each_head(LayerId layer, std::span<const QueryRows> own, const Body& body) const;
  void put_scales(LayerId layer, std::span<const QueryRows> own, float* mine);
  void put_outputs(LayerId layer, std::span<const QueryRows> own);
  void take_outputs(LayerId layer, std::span<const QueryRows> own);
  const SoftmaxStateView& nothing(std::int64_t n);

  LayerCompute& compute_;
  const RingStage& stage_;
  RingContext& context_;
  std::vector<std::vector<KvHeadId>> split_;  // [layers]
  // [m, l][n_rows][split heads x gqa_group]: of own heads, and of others (-inf, 0).
  ByteBuffer mine_;
  ByteBuffer scales_;  // [ring] the same of each rank
  // [1, 1, n], [1, n] twice: an empty state, whose o is zeros, which nobody writes to.
  DeviceTensor<float, 1> nothing_memory_;
  SoftmaxStateView nothing_;
  ByteBuffer joined_;  // [n_rows, split heads, gqa_group, head_dim]
  std::vector<CopyRowsItem> copies_;
};

}  // namespace longhaul
