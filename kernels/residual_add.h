// Adds the outputs of a layer's part to the residual stream, after their sum over ranks, or with
// it. Local.
#pragma once
#include <span>

#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

// hidden += ((parts[0] + parts[1]) + ...) + bias, in this order of additions.
struct ResidualAddArgs {
  TensorView<float, 2> hidden;       // [n_rows, n]
  TensorView<const float, 3> parts;  // [n_parts, n_rows, n]; at least one
  std::span<const float> bias;       // [n], or empty
};
void residual_add(StreamRef stream, const ResidualAddArgs& args);

}  // namespace longhaul
