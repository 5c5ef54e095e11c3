// Tasks of the operators that work row by row: norms, activations, RoPE, softmax states, top-k,
// cache writes. See kernels/cpu/isa/kernels.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace longhaul::cpu {

struct RmsNormTask {
  const float* x;
  std::int64_t x_stride;
  const float* weight;  // [width]
  float eps;
  float* out;
  std::int64_t out_stride;
  std::int64_t n_rows;
  std::int64_t width;
};

struct SwigluTask {
  const float* gate;  // [n]
  const float* up;    // [n]
  float* out;         // [n]
  std::int64_t n;
};

// All heads of one token.
struct RopeTask {
  float* x;  // [n_heads, rotary_dim..]
  std::int64_t head_stride;
  const float* cos;  // [half]
  const float* sin;  // [half]
  std::int64_t n_heads;
  std::int64_t half;  // rotary_dim / 2
};

struct CombineTask {
  float* out;
  const float* x;
  float a;
  const float* y;  // may be null
  float b;
  std::int64_t n;
};

struct RowStatistics {
  float max;          // over all elements
  double sum_of_exp;  // of exp(x - max); 0 when max is -inf
  bool has_nan;
};

struct KvAppendTask {
  const float* x;  // [n_tokens, head_dim]
  std::int64_t token_stride;
  std::int64_t n_tokens;
  std::int64_t head_dim;
  std::byte* to;  // the K or the V part of one block
  std::int64_t block_size;
  std::int64_t first_slot;  // within the block
  bool is_bf16;
  bool is_k;
};

}  // namespace longhaul::cpu
