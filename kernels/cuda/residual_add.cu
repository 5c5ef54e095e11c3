// residual_add: rows along y; neighbours read neighbours.
#include <algorithm>

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/plain_grid.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

__global__ void residual_add_kernel(float* hidden, std::int64_t hidden_stride, const float* part,
                                    std::int64_t part_stride, const float* bias,
                                    std::int64_t n_rows, std::int64_t n) {
  const std::int64_t i =
      static_cast<std::int64_t>(blockIdx.x) * kThreads + static_cast<std::int64_t>(threadIdx.x);
  if (i >= n) return;
  const float b = bias == nullptr ? 0.0F : bias[i];
  for (std::int64_t row = blockIdx.y; row < n_rows; row += gridDim.y) {
    hidden[row * hidden_stride + i] += part[row * part_stride + i] + b;
  }
}

}  // namespace

void residual_add(Stream& stream, const ResidualAddArgs& args) {
  const std::int64_t n_rows = args.hidden.dim(0);
  const std::int64_t n = args.hidden.dim(1);
  launch(
      stream, "residual_add", residual_add_kernel,
      {.x = (n + kThreads - 1) / kThreads, .y = std::min(n_rows, kMostGridRows), .block = kThreads},
      args.hidden.data(), args.hidden.stride(0), args.part.data(), args.part.stride(0),
      args.bias.empty() ? nullptr : args.bias.data(), n_rows, n);
}

}  // namespace longhaul::cuda
