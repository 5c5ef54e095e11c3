// Heads whose outputs are mixed by gates, one for each KV head, and the gradient of the gates (Xiao
// et al. 2024, arXiv 2410.10819, section 2.2). Local.
#pragma once
#include <span>

#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

// out = gate x other + (1 - gate) x own, of every query head by the gate of its KV head. Without
// `other`, that part is 0: which is what `own` gets of a gradient with respect to out.
struct MixHeadsArgs {
  std::span<const float> gates;           // [n_kv_heads], host memory
  TensorView<const float, 3> other = {};  // [n_rows, n_heads, head_dim], or empty
  TensorView<const float, 3> own;         // the same
  TensorView<float, 3> out;               // the same; may be own
};
// Throws kInvalidArgument for shapes that do not fit. All tensors are contiguous.
void mix_heads(StreamRef stream, const MixHeadsArgs& args);

// What each gate gets of each row: out[row][kv head] = sum of d_mixed x (other - own) over the
// heads of its group. Each sum has one order.
struct GateGradientArgs {
  TensorView<const float, 3> d_mixed;  // [n_rows, n_heads, head_dim]
  TensorView<const float, 3> other;    // the same
  TensorView<const float, 3> own;      // the same
  TensorView<float, 2> out;            // [n_rows, n_kv_heads]
};
// Throws kInvalidArgument for shapes that do not fit. All tensors are contiguous.
void gate_gradients(StreamRef stream, const GateGradientArgs& args);

}  // namespace longhaul
