// Matrix products with weights on one thread. See kernels/cpu/isa/kernels.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace longhaul::cpu {

// Outputs that one step of tiled_linear packs; tasks start at multiples of it.
inline constexpr std::int64_t kTiledOutputs = 64;

// Rows of x into the form that few_rows_linear reads: rounded to bf16 if the weights are, padded
// with zeros.
struct PackTask {
  const float* x;  // [n_rows, n_in]
  std::int64_t n_rows;
  std::int64_t n_in;
  bool weights_are_bf16;
  float* out;  // [n_rows, few_rows_x_floats]
};

// out[:, output_begin .. output_end): reads the weights once, without packing them.
struct FewRowsLinearTask {
  const float* x;  // as pack_few_rows_x left it
  std::int64_t x_stride;
  std::int64_t n_rows;
  const void* weight;  // [n_out, n_in]
  std::int64_t weight_stride;
  bool weights_are_bf16;
  std::int64_t n_in;
  const float* bias;  // may be null
  float* out;         // [n_rows, out_stride]
  std::int64_t out_stride;
  bool accumulate;
  std::int64_t output_begin;
  std::int64_t output_end;
};

// out[:, output_begin .. output_end) for any number of rows: packs the weights by tiles.
struct TiledLinearTask {
  const float* x;  // [n_rows, n_in], rounded to bf16 if the weights are
  std::int64_t n_rows;
  const void* weight;  // [n_out, n_in]
  std::int64_t weight_stride;
  bool weights_are_bf16;
  std::int64_t n_in;
  const float* bias;  // may be null
  float* out;         // [n_rows, out_stride]
  std::int64_t out_stride;
  bool accumulate;
  std::int64_t output_begin;
  std::int64_t output_end;
  std::byte* scratch;  // tiled_linear_scratch_bytes, aligned to 64 bytes
};

}  // namespace longhaul::cpu
