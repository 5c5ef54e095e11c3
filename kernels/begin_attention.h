// What lies between a layer's projections and its attention: norms of heads where the model has
// them, RoPE of queries and keys, keys and values into caches, empty states. The arithmetic is that
// of rms_norm, rope, kv_append and clear, one after the other; on GPUs it is one launch. Local.
#pragma once
#include <span>

#include "base/device/device.h"
#include "kernels/kv_append.h"
#include "kernels/softmax_state.h"
#include "kernels/tensor.h"

namespace longhaul {

// Queries and keys may be left out (no rows), each with what it is for.
struct BeginAttentionArgs {
  TensorView<float, 3> q = {};         // [n_tokens, n_heads, head_dim], turned in place
  TensorView<float, 3> k = {};         // [n_tokens, n_kv_heads, head_dim]; afterwards not defined
  std::span<const float> q_norm = {};  // [head_dim], or empty
  std::span<const float> k_norm = {};
  float norm_eps = 1e-5F;
  TensorView<const float, 2> cos = {};  // [n_tokens, rotary_dim / 2]
  TensorView<const float, 2> sin = {};
  KvAppendArgs append = {};     // each item's k are rows of a head of `k`
  SoftmaxStateView state = {};  // of q
};

void begin_attention(StreamRef stream, const BeginAttentionArgs& args);

}  // namespace longhaul
