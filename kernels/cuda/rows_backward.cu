// Gradients that are taken row by row or element by element, and heads mixed by gates. All are
// bound by memory, as rows.cu is.
#include <algorithm>

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/plain_grid.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

// --- rms_norm_backward --------------------------------------------------------------------------

struct RmsNormBackward {
  const float* x;  // [n_rows, width]
  std::int64_t x_stride;
  const float* weight;  // [width]
  float eps;
  const float* d_out;  // [n_rows, width]
  std::int64_t d_out_stride;
  float* d_x;  // [n_rows, width]; may be d_out
  std::int64_t d_x_stride;
  bool adds;
  std::int64_t n_rows;
  std::int64_t width;
  bool operator==(const RmsNormBackward&) const = default;
};

// What a row's values are scaled by: d_x = scale g - pull x.
struct NormScales {
  float scale;
  float pull;
};
__device__ NormScales norm_scales(const RmsNormBackward& k, float squares, float products) {
  const auto width = static_cast<float>(k.width);
  const float scale = 1.0F / sqrtf(squares / width + k.eps);
  return {scale, scale * scale * scale * (products / width)};
}

// Values [first, width) of a row in steps.
__device__ void write_norm_gradient(const RmsNormBackward& k, std::int64_t row, std::int64_t first,
                                    std::int64_t step, const NormScales& scales) {
  const float* x = k.x + row * k.x_stride;
  const float* d_out = k.d_out + row * k.d_out_stride;
  float* d_x = k.d_x + row * k.d_x_stride;
  for (std::int64_t i = first; i < k.width; i += step) {
    const float d = scales.scale * (d_out[i] * k.weight[i]) - scales.pull * x[i];
    d_x[i] = k.adds ? d_x[i] + d : d;
  }
}

struct NormSums {
  float squares = 0.0F;
  float products = 0.0F;
};
__device__ NormSums norm_sums(const RmsNormBackward& k, std::int64_t row, std::int64_t first,
                              std::int64_t step) {
  const float* x = k.x + row * k.x_stride;
  const float* d_out = k.d_out + row * k.d_out_stride;
  NormSums sums;
  for (std::int64_t i = first; i < k.width; i += step) {
    sums.squares += x[i] * x[i];
    sums.products += x[i] * d_out[i] * k.weight[i];
  }
  return sums;
}

// A warp for each row: grid.x covers n_rows / warps of a block.
__global__ void rms_norm_backward_by_warps(RmsNormBackward k) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) +
                           static_cast<std::int64_t>(threadIdx.x / kWarp);
  if (row >= k.n_rows) return;
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  const NormSums sums = norm_sums(k, row, lane, kWarp);
  const float squares = reduce_warp(sums.squares, Add());
  const float products = reduce_warp(sums.products, Add());
  write_norm_gradient(k, row, lane, kWarp, norm_scales(k, squares, products));
}

// A thread block for each row; shared: two floats for each warp.
__global__ void rms_norm_backward_by_blocks(RmsNormBackward k) {
  constexpr int kWarps = kThreads / kWarp;
  auto* shared = reinterpret_cast<float*>(shared_memory());
  const std::int64_t row = blockIdx.x;
  const NormSums sums = norm_sums(k, row, threadIdx.x, kThreads);
  const float squares = reduce_block(sums.squares, Add(), shared);
  // Its barrier stands between all reads of d_out and the first writes, which may be there.
  const float products = reduce_block(sums.products, Add(), shared + kWarps);
  write_norm_gradient(k, row, threadIdx.x, kThreads, norm_scales(k, squares, products));
}

// --- swiglu_backward ----------------------------------------------------------------------------

struct SwigluBackward {
  const float* gate;  // [n_tokens, d_ff]
  std::int64_t gate_stride;
  const float* up;
  std::int64_t up_stride;
  const float* d_out;
  std::int64_t d_out_stride;
  float* d_gate;
  std::int64_t d_gate_stride;
  float* d_up;
  std::int64_t d_up_stride;
  std::int64_t n_tokens;
  std::int64_t d_ff;
  bool operator==(const SwigluBackward&) const = default;
};

// grid.x covers d_ff, grid.y the tokens. A thread reads all that it needs before it writes.
__global__ void swiglu_backward_kernel(SwigluBackward k) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= k.d_ff) return;
  for (std::int64_t token = blockIdx.y; token < k.n_tokens; token += gridDim.y) {
    const float gate = k.gate[token * k.gate_stride + i];
    const float up = k.up[token * k.up_stride + i];
    const float d_out = k.d_out[token * k.d_out_stride + i];
    const float s = 1.0F / (1.0F + expf(-gate));
    k.d_gate[token * k.d_gate_stride + i] = d_out * up * s * (1.0F + gate * (1.0F - s));
    k.d_up[token * k.d_up_stride + i] = d_out * gate * s;
  }
}

// --- mix_heads, gate_gradients ------------------------------------------------------------------

struct MixHeads {
  const float* gates;  // [n_kv_heads]
  const float* other;  // [n_rows, n_kv_heads, width], or null
  const float* own;
  float* out;  // may be own
  std::int64_t n_kv_heads;
  std::int64_t width;  // of a KV head: gqa_group head_dim
  std::int64_t n;      // n_rows n_kv_heads width
  bool operator==(const MixHeads&) const = default;
};

// A thread for each value.
__global__ void mix_heads_kernel(MixHeads k) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= k.n) return;
  const float gate = k.gates[i / k.width % k.n_kv_heads];
  const float theirs = k.other == nullptr ? 0.0F : gate * k.other[i];
  k.out[i] = theirs + (1.0F - gate) * k.own[i];
}

struct GateGradients {
  const float* d_mixed;  // [n, width], n: n_rows n_kv_heads
  const float* other;
  const float* own;
  float* out;  // [n]
  std::int64_t n;
  std::int64_t width;
  bool operator==(const GateGradients&) const = default;
};

// A warp for each sum.
__global__ void gate_gradients_kernel(GateGradients k) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) +
                          static_cast<std::int64_t>(threadIdx.x / kWarp);
  if (at >= k.n) return;
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  float sum = 0.0F;
  for (std::int64_t i = at * k.width + lane; i < (at + 1) * k.width; i += kWarp) {
    sum += k.d_mixed[i] * (k.other[i] - k.own[i]);
  }
  sum = reduce_warp(sum, Add());
  if (lane == 0) k.out[at] = sum;
}

}  // namespace

void rms_norm_backward(Stream& stream, const RmsNormBackwardArgs& args) {
  const RmsNormBackward k = {.x = args.x.data(),
                             .x_stride = args.x.stride(0),
                             .weight = args.weight.data(),
                             .eps = args.eps,
                             .d_out = args.d_out.data(),
                             .d_out_stride = args.d_out.stride(0),
                             .d_x = args.d_x.data(),
                             .d_x_stride = args.d_x.stride(0),
                             .adds = args.adds,
                             .n_rows = args.x.dim(0),
                             .width = args.x.dim(1)};
  constexpr std::int64_t kMostOfAWarp = 512;
  if (k.width <= kMostOfAWarp) {
    launch(stream, "rms_norm_backward", rms_norm_backward_by_warps,
           {.x = ceil_div(k.n_rows, kThreads / kWarp), .block = kThreads}, k);
  } else {
    launch(stream, "rms_norm_backward", rms_norm_backward_by_blocks,
           {.x = k.n_rows, .block = kThreads, .shared_bytes = 2 * kThreads / kWarp * sizeof(float)},
           k);
  }
}

void swiglu_backward(Stream& stream, const SwigluBackwardArgs& args) {
  const SwigluBackward k = {.gate = args.gate.data(),
                            .gate_stride = args.gate.stride(0),
                            .up = args.up.data(),
                            .up_stride = args.up.stride(0),
                            .d_out = args.d_out.data(),
                            .d_out_stride = args.d_out.stride(0),
                            .d_gate = args.d_gate.data(),
                            .d_gate_stride = args.d_gate.stride(0),
                            .d_up = args.d_up.data(),
                            .d_up_stride = args.d_up.stride(0),
                            .n_tokens = args.gate.dim(0),
                            .d_ff = args.gate.dim(1)};
  launch(stream, "swiglu_backward", swiglu_backward_kernel,
         {.x = ceil_div(k.d_ff, kThreads),
          .y = std::min(k.n_tokens, kMostGridRows),
          .block = kThreads},
         k);
}

void mix_heads(Stream& stream, const MixHeadsArgs& args) {
  const auto n_kv_heads = static_cast<std::int64_t>(args.gates.size());
  const MixHeads k = {
      .gates = reinterpret_cast<const float*>(stream.upload(std::as_bytes(args.gates))),
      .other = args.other.data(),
      .own = args.own.data(),
      .out = args.out.data(),
      .n_kv_heads = n_kv_heads,
      .width = args.out.dim(1) / n_kv_heads * args.out.dim(2),
      .n = args.out.size()};
  launch(stream, "mix_heads", mix_heads_kernel, {.x = ceil_div(k.n, kThreads), .block = kThreads},
         k);
}

void gate_gradients(Stream& stream, const GateGradientArgs& args) {
  const GateGradients k = {.d_mixed = args.d_mixed.data(),
                           .other = args.other.data(),
                           .own = args.own.data(),
                           .out = args.out.data(),
                           .n = args.out.size(),
                           .width = args.own.dim(1) / args.out.dim(1) * args.own.dim(2)};
  launch(stream, "gate_gradients", gate_gradients_kernel,
         {.x = ceil_div(k.n, kThreads / kWarp), .block = kThreads}, k);
}

}  // namespace longhaul::cuda
