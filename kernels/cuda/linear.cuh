// Products of linear.cu with rows that are there in the type that they take.
#pragma once
#include "base/device/device_cuda.h"
#include "kernels/linear.h"

namespace longhaul::cuda {

// Or several of one shape, whose weights and outputs lie at equal distances.
struct FloatProduct {
  const void* x = nullptr;    // [n_rows, n_in], of the weight's type
  std::int64_t x_stride = 0;  // elements from row to row
  std::int64_t n_rows = 0;
  WeightView weight = {};       // f32 or bf16
  const float* bias = nullptr;  // [n_out], or null
  float* out = nullptr;         // [n_rows, n_out]
  std::int64_t out_stride = 0;
  LinearOutput output = LinearOutput::kOverwrite;
  // Of several, which have no bias: how many, and elements from one to the next.
  std::int64_t n_products = 1;
  std::int64_t weight_step = 0;
  std::int64_t out_step = 0;
};
void multiply_floats(Stream& stream, const FloatProduct& product);

}  // namespace longhaul::cuda
