#include "partition/weight_bytes.h"

#include "base/fp8_format.h"
#include "base/int4_format.h"
#include "base/int8_format.h"

namespace longhaul {

std::int64_t matrix_bytes(std::int64_t rows, std::int64_t columns, DType dtype) {
  if (dtype == DType::kI8) return int8_matrix_bytes(rows, columns);
  if (dtype == DType::kI4) return int4_matrix_bytes(rows, columns);
  if (dtype == DType::kF8E4m3) return fp8_matrix_bytes(rows, columns);
  return rows * columns * static_cast<std::int64_t>(size_of(dtype));
}

double bytes_of_weight(DType dtype) {
  if (dtype != DType::kI4) return static_cast<double>(size_of(dtype));
  constexpr std::int64_t kInputs = Int4Layout{}.group;
  return static_cast<double>(int4_matrix_bytes(kInt8Panel, kInputs)) /
         static_cast<double>(kInt8Panel * kInputs);
}

std::int64_t layer_weight_bytes(const ModelSpec& spec, DType dtype) {
  const std::int64_t q_rows = spec.n_heads * spec.head_dim;
  const std::int64_t kv_rows = spec.n_kv_heads * spec.head_dim;
  std::int64_t bytes =
      matrix_bytes(q_rows, spec.d_model, dtype) + 2 * matrix_bytes(kv_rows, spec.d_model, dtype) +
      matrix_bytes(spec.d_model, q_rows, dtype) + 2 * matrix_bytes(spec.d_ff, spec.d_model, dtype) +
      matrix_bytes(spec.d_model, spec.d_ff, dtype);
  std::int64_t f32_values = 2 * spec.d_model;  // the two norms
  if (spec.qkv_bias) f32_values += q_rows + 2 * kv_rows;
  if (spec.attention_output_bias) f32_values += spec.d_model;
  if (spec.mlp_bias) f32_values += 2 * spec.d_ff + spec.d_model;
  if (spec.qk_norm) f32_values += 2 * spec.head_dim;
  if (spec.sink_logits != SinkLogits::kNone) f32_values += spec.n_heads;
  return bytes + 4 * f32_values;
}

std::int64_t embedding_bytes(const ModelSpec& spec, DType dtype) {
  return matrix_bytes(spec.vocab_size, spec.d_model, table_type(dtype));
}

std::int64_t stage_weight_bytes(const ModelSpec& spec, DType dtype, Extent layers) {
  const bool first = layers.begin == 0;
  const bool last = layers.end == spec.n_layers;
  std::int64_t bytes = layers.size() * layer_weight_bytes(spec, dtype);
  if (first) bytes += embedding_bytes(spec, dtype);
  if (last) bytes += 4 * spec.d_model;
  if (last && !spec.tied_embeddings)
    bytes += matrix_bytes(spec.vocab_size, spec.d_model, head_type(dtype));
  if (last && spec.tied_embeddings && !first) bytes += embedding_bytes(spec, dtype);
  return bytes;
}

}  // namespace longhaul
