// sum_rows: a thread for each column; neighbours read neighbours.
#include <algorithm>

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/plain_grid.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr std::int64_t kMostBlocks = 4096;  // then threads take several columns

__global__ void sum_rows_kernel(float* sum,         // [n]
                                const float* rows,  // [n_rows, n]
                                std::int64_t n_rows, std::int64_t n) {
  const std::int64_t n_threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kThreads + static_cast<std::int64_t>(threadIdx.x);
  for (std::int64_t i = first; i < n; i += n_threads) {
    float total = rows[i];
    for (std::int64_t r = 1; r < n_rows; ++r) total += rows[r * n + i];
    sum[i] = total;
  }
}

}  // namespace

void sum_rows(Stream& stream, const SumRowsArgs& args) {
  const std::int64_t n = args.rows.dim(1);
  const std::int64_t n_blocks = std::min(kMostBlocks, (n + kThreads - 1) / kThreads);
  launch(stream, "sum_rows", sum_rows_kernel, {.x = n_blocks, .block = kThreads}, args.sum.data(),
         args.rows.data(), args.rows.dim(0), n);
}

}  // namespace longhaul::cuda
