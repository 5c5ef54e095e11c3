// RMSNorm (Zhang & Sennrich 2019): out = x / sqrt(mean(x^2) + eps) * weight, row by row. Local.
#pragma once
#include <span>

#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

struct RmsNormArgs {
  TensorView<const float, 2> x;  // [n_rows, width]; a row is a token, or a token's head for QK norm
  std::span<const float> weight;  // [width]
  float eps = 1e-5F;
  TensorView<float, 2> out;  // [n_rows, width]; may be x
};

void rms_norm(StreamRef stream, const RmsNormArgs& args);

}  // namespace longhaul
