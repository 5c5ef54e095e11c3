// Adds the outputs of a layer's part to the residual stream, after their sum over ranks. Local.
#pragma once
#include <span>

#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

// hidden += part + bias, in this order of additions.
struct ResidualAddArgs {
  TensorView<float, 2> hidden;      // [n_rows, n]
  TensorView<const float, 2> part;  // [n_rows, n]
  std::span<const float> bias;      // [n], or empty
};
void residual_add(StreamRef stream, const ResidualAddArgs& args);

}  // namespace longhaul
