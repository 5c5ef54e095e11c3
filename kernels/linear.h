// Matrix products with weights: out = x W^T (+ bias), or out += x W^T for residual connections.
// Local. float32 accumulation. With bf16 weights x is rounded to bf16 first, for any number of
// rows, so that a token's result does not depend on how many tokens are computed together beyond
// the order of float32 additions. With weights of int8 or int4 x is quantised to int8
// (kernels/int8_weights.h), for any number of rows too; a row's result has the same bits beside any
// other rows, with any instruction set and number of threads. With weights of fp8 nothing is
// rounded but the weight itself, code times scale, to a float, and on GPUs x to bf16; or x is
// rounded to fp8, too, where the weight says so (base/fp8_format.h).
#pragma once
#include <span>

#include "base/device/device.h"
#include "kernels/sum_order.h"
#include "kernels/tensor.h"

namespace longhaul {

enum class LinearOutput { kOverwrite, kAccumulate };

struct LinearArgs {
  TensorView<const float, 2> x;      // [n_tokens, n_in], contiguous
  WeightView weight;                 // [n_out, n_in]
  std::span<const float> bias = {};  // [n_out] or empty
  TensorView<float, 2> out;          // [n_tokens, n_out], contiguous
  LinearOutput output = LinearOutput::kOverwrite;
  SumOrder order = SumOrder::kFastest;  // of integer weights all are one; GPUs have kFastest alone
};

void linear(StreamRef stream, const LinearArgs& args);

}  // namespace longhaul
