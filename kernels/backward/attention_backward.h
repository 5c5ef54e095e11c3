// Attention of queries over a window of keys, with its gradients: for training, where keys lie in
// rows, in order, and no cache holds them. For windows that are short beside the text (streaming
// heads under the exact window, layers with windows of their own): a tile of queries takes memory
// for all keys that it sees (on CPUs). Local.
//
// With s = sm_scale q k, p = softmax(s), o = p v, and d_o given:
//   d_v = p^T d_o     d_s = p (d_o v^T - sum(o d_o))     d_q = sm_scale d_s k     d_k = sm_scale
//   d_s^T q
// The sums have one order, so the same bits come out every time, with any number of threads.
#pragma once
#include <cstdint>
#include <span>

#include "base/device/device.h"
#include "kernels/attention.h"
#include "kernels/tensor.h"

namespace longhaul {

struct AttentionBackwardArgs {
  TensorView<const float, 3> q;               // [q_len, n_heads, head_dim], after RoPE
  std::span<const std::int64_t> q_positions;  // [q_len], ascending
  TensorView<const float, 3> k;               // [kv_len, n_kv_heads, head_dim], after RoPE
  TensorView<const float, 3> v;               // [kv_len, n_kv_heads, head_dim]
  std::span<const std::int64_t> k_positions;  // [kv_len], ascending
  AttentionMask mask = {};
  float sm_scale = 1.0F;
  // [n_heads] or empty, of the device (FinishAttentionArgs has them)
  std::span<const float> sink_logits = {};
  TensorView<const float, 3> d_o;  // [q_len, n_heads, head_dim]
  TensorView<float, 3> o;    // [q_len, n_heads, head_dim]; a query that sees no key gives zeros
  TensorView<float, 3> d_q;  // [q_len, n_heads, head_dim]; may be d_o
  TensorView<float, 3> d_k;  // [kv_len, n_kv_heads, head_dim]
  TensorView<float, 3> d_v;  // [kv_len, n_kv_heads, head_dim]
};

// The largest head_dim on GPUs.
inline constexpr std::int64_t kMostBackwardGpuDims = 256;

// Throws kInvalidArgument for shapes that do not fit; on GPUs kUnsupported for a head_dim beyond
// kMostBackwardGpuDims. All tensors are contiguous.
void attention_backward(StreamRef stream, const AttentionBackwardArgs& args);

}  // namespace longhaul
