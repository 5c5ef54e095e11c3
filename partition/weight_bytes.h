// Bytes of a model's weights as they lie in memory, from its dimensions alone: matrices in the
// weights' dtype (int8: base/int8_format.h, with one f32 scale per output row; int4:
// base/int4_format.h, with an f16 scale for each 32 inputs of a row; fp8: base/fp8_format.h, with
// an f32 scale for each 128 x 128), norms and biases in f32, the embedding table in bf16 when the
// matrices are of integers or fp8, and beside fp8 the output head too.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "base/ids.h"
#include "model/model_spec.h"

namespace longhaul {

std::int64_t matrix_bytes(std::int64_t rows, std::int64_t columns, DType dtype);
// Of one weight of a large matrix.
double bytes_of_weight(DType dtype);

// Of one layer: attention, FFN, norms, biases.
std::int64_t layer_weight_bytes(const ModelSpec& spec, DType dtype);
std::int64_t embedding_bytes(const ModelSpec& spec, DType dtype);

// What every rank of a stage holds: its layers; the embedding in the first stage; the output head
// and the last norm in the last one (with tied embeddings one table serves both, where a stage is
// both first and last).
std::int64_t stage_weight_bytes(const ModelSpec& spec, DType dtype, Extent layers);

}  // namespace longhaul
