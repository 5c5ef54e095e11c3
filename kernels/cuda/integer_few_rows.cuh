// What the kernels of linear with int8 and int4 weights for few rows (decode) share. A thread block
// has two panels, and its 8 warps take parts of the inputs in turns, so that every one has weights
// under way while the last ones are added up. What a warp multiplies goes to shared memory, where
// warp w adds up row w of each 8 rows (a tile), an output a lane, in the inputs' order.
#pragma once
#include <type_traits>

#include "kernels/cuda/integer_linear.cuh"
#include "kernels/cuda/reduce.cuh"

namespace longhaul::cuda {

constexpr int kFewRowsWarps = 8;
constexpr int kFewRowsThreads = kFewRowsWarps * kWarp;
constexpr int kFewRowsLanes = 2 * kPanelOutputs;
constexpr int kSumStride = kFewRowsLanes + 4;  // floats of a row: no bank is written twice at once

// total: of row 8 tile + warp, and the thread block's output `lane`.
template <int kTiles, typename Work>
__device__ __forceinline__ void store_rows(const Work& work, std::int64_t panels, int warp,
                                           int lane, const float (&total)[kTiles]) {
  const LaneOutput to(work, panels * kFewRowsLanes + lane);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const std::int64_t row = 8 * tile + warp;
    if (row < work.n_rows) to.store(work, row, total[tile]);
  }
}

// run(number of tiles), which is a constant, for up to kFewIntegerRows.
template <typename Run>
void with_tiles_of(std::int64_t n_rows, const Run& run) {
  static_assert(kFewIntegerRows == 4 * 8);
  if (n_rows <= 8) return run(std::integral_constant<int, 1>());
  if (n_rows <= 16) return run(std::integral_constant<int, 2>());
  run(std::integral_constant<int, 4>());
}

}  // namespace longhaul::cuda
