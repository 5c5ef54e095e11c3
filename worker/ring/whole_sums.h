// The second half of a decode layer on a ring with reproducible results: no sum is cut between
// ranks. Ring decode as it is fastest (ring_decode.h) adds up parts of the output projection and of
// the feed-forward network's last product; here ranks bring together what these products read, and
// each computes some of their outputs whole. That is four exchanges of a layer instead of two.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/device_tensor.h"
#include "worker/attention/attention_work.h"
#include "worker/layer_compute.h"
#include "worker/ring/column_gather.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_stage.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it. For ranks on CPUs.
class WholeSums {
 public:
  WholeSums(LayerCompute& compute, const RingStage& stage, RingContext& context);

  // Both are collective over the ring and leave the same hidden states on all ranks.

  // hidden += output projection of all heads, of which `own` are this rank's, finished.
  void add_attention_output(LayerId layer, std::span<const QueryRows> own);
  void add_feed_forward(LayerId layer);

  std::size_t buffer_bytes() const;

 private:
  TensorView<float, 2> matrix(DeviceTensor<float, 2>& memory, std::int64_t n_columns);
  template <typename Product>
  void add(LayerId layer, const Product& product);

  LayerCompute& compute_;
  const RingStage& stage_;
  ColumnGather gather_;
  ColumnsOfRing outputs_;             // of d_model: who computes which
  ColumnsOfRing ffn_;                 // of d_ff
  std::vector<ColumnsOfRing> heads_;  // [layers] of n_heads x head_dim: whose heads
  DeviceTensor<float, 2> own_heads_, all_heads_, own_activations_, all_activations_, own_outputs_;
  std::vector<CopyRowsItem> copies_;
};

}  // namespace longhaul
