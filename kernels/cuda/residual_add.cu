// residual_add: rows along y; neighbours read neighbours.
#include <algorithm>

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/plain_grid.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

struct Parts {
  const float* at;  // [n_parts, n_rows, n]
  std::int64_t part_stride;
  std::int64_t row_stride;
  std::int64_t n_parts;
  bool operator==(const Parts&) const = default;
};

__global__ void residual_add_kernel(float* hidden, std::int64_t hidden_stride, Parts parts,
                                    const float* bias, std::int64_t n_rows, std::int64_t n) {
  const std::int64_t i =
      static_cast<std::int64_t>(blockIdx.x) * kThreads + static_cast<std::int64_t>(threadIdx.x);
  if (i >= n) return;
  const float b = bias == nullptr ? 0.0F : bias[i];
  for (std::int64_t row = blockIdx.y; row < n_rows; row += gridDim.y) {
    const float* of_row = parts.at + row * parts.row_stride + i;
    float sum = of_row[0];
    for (std::int64_t k = 1; k < parts.n_parts; ++k) sum += of_row[k * parts.part_stride];
    hidden[row * hidden_stride + i] += sum + b;
  }
}

}  // namespace

void residual_add(Stream& stream, const ResidualAddArgs& args) {
  const std::int64_t n_rows = args.hidden.dim(0);
  const std::int64_t n = args.hidden.dim(1);
  launch(
      stream, "residual_add", residual_add_kernel,
      {.x = (n + kThreads - 1) / kThreads, .y = std::min(n_rows, kMostGridRows), .block = kThreads},
      args.hidden.data(), args.hidden.stride(0),
      Parts{args.parts.data(), args.parts.stride(0), args.parts.stride(1), args.parts.dim(0)},
      args.bias.empty() ? nullptr : args.bias.data(), n_rows, n);
}

}  // namespace longhaul::cuda
