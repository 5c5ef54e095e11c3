// Operators that work row by row or element by element: rms_norm, rope, swiglu, embedding. All are
// bound by memory; each thread block takes 256 threads and reads along rows.
#include <algorithm>

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/plain_grid.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
  return std::as_bytes(values);
}

// --- rms_norm -----------------------------------------------------------------------------------

struct RmsNorm {
  const float* x;  // [n_rows, width]
  std::int64_t x_stride;
  const float* weight;  // [width]
  float eps;
  float* out;  // [n_rows, width]
  std::int64_t out_stride;
  std::int64_t n_rows;
  std::int64_t width;
  bool operator==(const RmsNorm&) const = default;
};

// A warp for each row: grid.x covers n_rows / warps of a block.
__global__ void rms_norm_by_warps(RmsNorm k) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) +
                           static_cast<std::int64_t>(threadIdx.x / kWarp);
  if (row >= k.n_rows) return;
  const float* x = k.x + row * k.x_stride;
  float* out = k.out + row * k.out_stride;
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  const float factor = norm_factor_of_warp(x, k.width, k.eps);
  for (std::int64_t i = lane; i < k.width; i += kWarp) out[i] = x[i] * factor * k.weight[i];
}

// A thread block for each row; shared: a float for each warp.
__global__ void rms_norm_by_blocks(RmsNorm k) {
  const float* x = k.x + static_cast<std::int64_t>(blockIdx.x) * k.x_stride;
  float* out = k.out + static_cast<std::int64_t>(blockIdx.x) * k.out_stride;
  const float factor =
      norm_factor_of_block(x, k.width, k.eps, reinterpret_cast<float*>(shared_memory()));
  for (std::int64_t i = threadIdx.x; i < k.width; i += kThreads) {
    out[i] = x[i] * factor * k.weight[i];
  }
}

// --- rope ---------------------------------------------------------------------------------------

struct RopeAngles {
  const std::int64_t* positions;      // [n_tokens]
  const double* inverse_frequencies;  // [half]
  double scale;
  float* cos;  // [n_tokens, half]
  std::int64_t cos_stride;
  float* sin;
  std::int64_t sin_stride;
  std::int64_t n_tokens;
  std::int64_t half;
  bool operator==(const RopeAngles&) const = default;
};

// A thread for each angle, in double precision.
__global__ void rope_angles_kernel(RopeAngles k) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= k.n_tokens * k.half) return;
  const std::int64_t token = i / k.half;
  const std::int64_t pair = i % k.half;
  const double angle = static_cast<double>(k.positions[token]) * k.inverse_frequencies[pair];
  k.cos[token * k.cos_stride + pair] = static_cast<float>(cos(angle) * k.scale);
  k.sin[token * k.sin_stride + pair] = static_cast<float>(sin(angle) * k.scale);
}

struct Rope {
  float* x;  // [n_tokens, n_heads, head_dim]
  std::int64_t token_stride;
  std::int64_t head_stride;
  const float* cos;  // [n_tokens, half]
  std::int64_t cos_stride;
  const float* sin;
  std::int64_t sin_stride;
  std::int64_t n_heads;
  std::int64_t half;
  std::int64_t n_pairs;  // n_tokens n_heads half
  bool operator==(const Rope&) const = default;
};

// A thread for each pair of dims.
__global__ void rope_kernel(Rope k) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= k.n_pairs) return;
  const std::int64_t pair = i % k.half;
  const std::int64_t head = i / k.half % k.n_heads;
  const std::int64_t token = i / k.half / k.n_heads;
  const float c = k.cos[token * k.cos_stride + pair];
  const float s = k.sin[token * k.sin_stride + pair];
  float* x = k.x + token * k.token_stride + head * k.head_stride + pair;
  const DimPair pair_after = turned(x[0], x[k.half], c, s);
  x[0] = pair_after.low;
  x[k.half] = pair_after.high;
}

// --- swiglu -------------------------------------------------------------------------------------

struct Swiglu {
  const float* gate;  // [n_tokens, d_ff]
  std::int64_t gate_stride;
  const float* up;
  std::int64_t up_stride;
  float* out;
  std::int64_t out_stride;
  std::int64_t d_ff;
  bool operator==(const Swiglu&) const = default;
};

// grid.x covers d_ff, grid.y is the token.
__global__ void swiglu_kernel(Swiglu k) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= k.d_ff) return;
  const std::int64_t token = blockIdx.y;
  k.out[token * k.out_stride + i] =
      activated(k.gate[token * k.gate_stride + i], k.up[token * k.up_stride + i]);
}

// --- embedding ----------------------------------------------------------------------------------

struct Embedding {
  const void* table;  // [vocab_size, d_model], f32 or bf16
  bool is_bf16;
  std::int64_t table_stride;
  const std::int32_t* tokens;  // [n_tokens]
  float* out;                  // [n_tokens, d_model]
  std::int64_t out_stride;
  std::int64_t d_model;
  bool operator==(const Embedding&) const = default;
};

// grid.x covers d_model, grid.y is the token.
__global__ void embedding_kernel(Embedding k) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= k.d_model) return;
  const std::int64_t token = blockIdx.y;
  const std::int64_t at = k.tokens[token] * k.table_stride + i;
  float* out = k.out + token * k.out_stride + i;
  if (k.is_bf16) {
    const std::uint32_t bits = static_cast<const std::uint16_t*>(k.table)[at];
    *out = __uint_as_float(bits << 16U);
  } else {
    *out = static_cast<const float*>(k.table)[at];
  }
}

// grid.y has 16 bits; rows beyond are done by further launches.
}  // namespace

void rms_norm(Stream& stream, const RmsNormArgs& args) {
  const std::int64_t n_rows = args.x.dim(0);
  const std::int64_t width = args.x.dim(1);
  const RmsNorm k = {.x = args.x.data(),
                     .x_stride = args.x.stride(0),
                     .weight = args.weight.data(),
                     .eps = args.eps,
                     .out = args.out.data(),
                     .out_stride = args.out.stride(0),
                     .n_rows = n_rows,
                     .width = width};
  if (width <= kMostNormOfAWarp) {
    launch(stream, "rms_norm", rms_norm_by_warps,
           {.x = ceil_div(n_rows, kThreads / kWarp), .block = kThreads}, k);
  } else {
    launch(stream, "rms_norm", rms_norm_by_blocks,
           {.x = n_rows, .block = kThreads, .shared_bytes = kThreads / kWarp * sizeof(float)}, k);
  }
}

void rope_angles(Stream& stream, const RopeAnglesArgs& args) {
  const std::byte* positions = stream.upload(bytes_of(args.positions));
  const std::byte* frequencies = stream.upload(bytes_of(args.inverse_frequencies));
  const RopeAngles k = {.positions = reinterpret_cast<const std::int64_t*>(positions),
                        .inverse_frequencies = reinterpret_cast<const double*>(frequencies),
                        .scale = args.attention_scale,
                        .cos = args.cos.data(),
                        .cos_stride = args.cos.stride(0),
                        .sin = args.sin.data(),
                        .sin_stride = args.sin.stride(0),
                        .n_tokens = args.cos.dim(0),
                        .half = args.cos.dim(1)};
  launch(stream, "rope_angles", rope_angles_kernel,
         {.x = ceil_div(k.n_tokens * k.half, kThreads), .block = kThreads}, k);
}

void rope(Stream& stream, const RopeArgs& args) {
  const Rope k = {.x = args.x.data(),
                  .token_stride = args.x.stride(0),
                  .head_stride = args.x.stride(1),
                  .cos = args.cos.data(),
                  .cos_stride = args.cos.stride(0),
                  .sin = args.sin.data(),
                  .sin_stride = args.sin.stride(0),
                  .n_heads = args.x.dim(1),
                  .half = args.cos.dim(1),
                  .n_pairs = args.x.dim(0) * args.x.dim(1) * args.cos.dim(1)};
  launch(stream, "rope", rope_kernel, {.x = ceil_div(k.n_pairs, kThreads), .block = kThreads}, k);
}

void swiglu(Stream& stream, const SwigluArgs& args) {
  const std::int64_t d_ff = args.gate.dim(1);
  for (std::int64_t row = 0; row < args.gate.dim(0); row += kMostGridRows) {
    const Swiglu k = {.gate = args.gate.data() + row * args.gate.stride(0),
                      .gate_stride = args.gate.stride(0),
                      .up = args.up.data() + row * args.up.stride(0),
                      .up_stride = args.up.stride(0),
                      .out = args.out.data() + row * args.out.stride(0),
                      .out_stride = args.out.stride(0),
                      .d_ff = d_ff};
    launch(stream, "swiglu", swiglu_kernel,
           {.x = ceil_div(d_ff, kThreads),
            .y = std::min(kMostGridRows, args.gate.dim(0) - row),
            .block = kThreads},
           k);
  }
}

void embedding(Stream& stream, const EmbeddingArgs& args) {
  const auto n_tokens = static_cast<std::int64_t>(args.tokens.size());
  const auto* tokens = reinterpret_cast<const std::int32_t*>(stream.upload(bytes_of(args.tokens)));
  for (std::int64_t row = 0; row < n_tokens; row += kMostGridRows) {
    const Embedding k = {.table = args.table.data,
                         .is_bf16 = args.table.dtype == DType::kBf16,
                         .table_stride = args.table.stride(),
                         .tokens = tokens + row,
                         .out = args.out.data() + row * args.out.stride(0),
                         .out_stride = args.out.stride(0),
                         .d_model = args.table.n_in};
    launch(stream, "embedding", embedding_kernel,
           {.x = ceil_div(k.d_model, kThreads),
            .y = std::min(kMostGridRows, n_tokens - row),
            .block = kThreads},
           k);
  }
}

}  // namespace longhaul::cuda
