// Products of linear.cu with rows that are there in the type that they take.
#pragma once
#include "base/device/device_cuda.h"
#include "kernels/linear.h"

namespace longhaul::cuda {

struct FloatProduct {
  const void* x = nullptr;    // [n_rows, n_in], of the weight's type
  std::int64_t x_stride = 0;  // elements from row to row
  std::int64_t n_rows = 0;
  WeightView weight = {};       // f32 or bf16
  const float* bias = nullptr;  // [n_out], or null
  float* out = nullptr;         // [n_rows, n_out]
  std::int64_t out_stride = 0;
  LinearOutput output = LinearOutput::kOverwrite;
};
void multiply_floats(Stream& stream, const FloatProduct& product);

}  // namespace longhaul::cuda
