// SwiGLU (Shazeer 2020): out = silu(gate) * up, silu(x) = x / (1 + exp(-x)). Local.
#pragma once
#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

struct SwigluArgs {
  TensorView<const float, 2> gate;  // [n_tokens, d_ff]
  TensorView<const float, 2> up;    // [n_tokens, d_ff]
  TensorView<float, 2> out;         // [n_tokens, d_ff]; may be gate or up
};

void swiglu(StreamRef stream, const SwigluArgs& args);

}  // namespace longhaul
