#include "worker/layer_slice.h"

namespace longhaul {
namespace {

// These rows of a vector, or none where the model has none.
std::span<const float> rows_of(std::span<const float> vector, Extent rows) {
  if (vector.empty()) return {};
  return vector.subspan(static_cast<std::size_t>(rows.begin),
                        static_cast<std::size_t>(rows.size()));
}

Extent scaled(Extent extent, std::int64_t by) { return {extent.begin * by, extent.end * by}; }

}  // namespace

LayerWeights heads_of(const LayerWeights& layer, const ModelSpec& spec, Extent kv_heads) {
  const Extent heads = scaled(kv_heads, spec.gqa_group());
  const Extent columns = scaled(heads, spec.head_dim);
  const Extent kv_columns = scaled(kv_heads, spec.head_dim);
  LayerWeights part;
  part.attention_norm = layer.attention_norm;
  part.q = layer.q.outputs(columns);
  part.k = layer.k.outputs(kv_columns);
  part.v = layer.v.outputs(kv_columns);
  part.o = layer.o.inputs(columns);
  part.q_bias = rows_of(layer.q_bias, columns);
  part.k_bias = rows_of(layer.k_bias, kv_columns);
  part.v_bias = rows_of(layer.v_bias, kv_columns);
  part.q_norm = layer.q_norm;
  part.k_norm = layer.k_norm;
  part.sink_logits = rows_of(layer.sink_logits, heads);
  return part;
}

LayerWeights ffn_columns_of(const LayerWeights& layer, Extent columns) {
  LayerWeights part;
  part.ffn_norm = layer.ffn_norm;
  part.gate = layer.gate.outputs(columns);
  part.up = layer.up.outputs(columns);
  part.down = layer.down.inputs(columns);
  part.gate_bias = rows_of(layer.gate_bias, columns);
  part.up_bias = rows_of(layer.up_bias, columns);
  return part;
}

LayerWeights outputs_of(const LayerWeights& layer, Extent columns) {
  LayerWeights part;
  part.o = layer.o.outputs(columns);
  part.o_bias = rows_of(layer.o_bias, columns);
  part.down = layer.down.outputs(columns);
  part.down_bias = rows_of(layer.down_bias, columns);
  return part;
}

}  // namespace longhaul
