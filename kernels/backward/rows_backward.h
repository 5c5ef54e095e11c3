// Gradients of the operators that work row by row, with respect to their inputs. Local. RoPE has
// none of its own: a rotation's gradient is turned back, which rope() does when it is given -sin
// for sin, as rope_angles makes them of positions below 0.
#pragma once
#include <span>

#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

// Of out = x / sqrt(mean(x^2) + eps) * weight (kernels/rms_norm.h). With r = 1 / sqrt(mean(x^2) +
// eps) and g = d_out * weight:
//   d_x = r g - x r^3 mean(x g)
struct RmsNormBackwardArgs {
  TensorView<const float, 2> x;   // [n_rows, width], what rms_norm was given
  std::span<const float> weight;  // [width]
  float eps = 1e-5F;
  TensorView<const float, 2> d_out;  // [n_rows, width]
  TensorView<float, 2> d_x;          // [n_rows, width]; may be d_out unless it is added to
  bool adds = false;                 // d_x += instead of d_x =
};
void rms_norm_backward(StreamRef stream, const RmsNormBackwardArgs& args);

// Of out = silu(gate) * up (kernels/swiglu.h). With s = 1 / (1 + exp(-gate)):
//   d_up = d_out gate s       d_gate = d_out up s (1 + gate (1 - s))
struct SwigluBackwardArgs {
  TensorView<const float, 2> gate;   // [n_tokens, d_ff]
  TensorView<const float, 2> up;     // [n_tokens, d_ff]
  TensorView<const float, 2> d_out;  // [n_tokens, d_ff]
  TensorView<float, 2> d_gate;       // [n_tokens, d_ff]; may be gate
  TensorView<float, 2> d_up;         // [n_tokens, d_ff]; may be up or d_out
};
void swiglu_backward(StreamRef stream, const SwigluBackwardArgs& args);

}  // namespace longhaul
