// A part of a layer's weights as a smaller layer: some KV heads with their groups of query heads,
// or some columns of the feed-forward network. The whole is the trivial part, so that the
// arithmetic of a layer (layer_compute.h) is written once for a rank alone, for prefill on a ring,
// where every rank has whole layers, and for decode there, where the ranks share one. Pure.
#pragma once
#include "base/ids.h"
#include "model/model_spec.h"
#include "worker/weights.h"

namespace longhaul {

// The attention of these KV heads: their rows of q, k and v, their inputs of o. What all parts add
// up to lacks o_bias, which is added once, to the sum. Views of the same memory; the feed-forward
// network's are left out.
LayerWeights heads_of(const LayerWeights& layer, const ModelSpec& spec, Extent kv_heads);

// The feed-forward network's columns [columns) of d_ff; the sum of all parts lacks down_bias. With
// weights of integers columns begin and end where groups of activations do
// (kernels/int8_weights.h). Attention's weights are left out.
LayerWeights ffn_columns_of(const LayerWeights& layer, Extent columns);

// The output projection and the feed-forward network's last product, for these columns of d_model
// only: each output is whole. The rest is left out.
LayerWeights outputs_of(const LayerWeights& layer, Extent columns);

}  // namespace longhaul
