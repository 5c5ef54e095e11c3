// Each query's own token, read beside the cache: one key and value more in its softmax state. For
// caches whose newest slot is not what every query of a chunk sees there (merge_tokens.h). Local.
#pragma once
#include "base/device/device.h"
#include "kernels/kv_block.h"
#include "kernels/softmax_state.h"
#include "kernels/tensor.h"

namespace longhaul {

struct OwnKeysArgs {
  KvBlockShape shape;  // keys and values are rounded as its types would give them back
  float sm_scale = 1.0F;
  TensorView<const float, 3> q;  // [n, n_heads, head_dim], after RoPE
  TensorView<const float, 3> k;  // [n, n_kv_heads, head_dim], after RoPE
  TensorView<const float, 3> v;  // [n, n_kv_heads, head_dim]
  SoftmaxStateView state;        // [n, n_heads(, head_dim)]; added to
};
void add_own_keys(StreamRef stream, const OwnKeysArgs& args);

}  // namespace longhaul
