// What the kernels of attention_backward.cu share: 32 rows (queries x heads of a group) meet 32
// keys, both in shared memory, by 128 threads. Thread t has the rows (or keys) 2 (t / 8) and the
// next one, and of the other side every eighth from t % 8 on; of head_dim, four neighbours in
// every 32.
#pragma once
#include "kernels/cuda/attention_backward_plan.h"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/reduce.cuh"

namespace longhaul::cuda {

inline constexpr int kBackwardThreads = 128;  // 16 pairs of rows times 8
inline constexpr int kScoreStride = kBackwardTile + 1;

// Four neighbouring floats, read at once.
struct alignas(16) Floats4 {
  float at[4];
};

// Rows of head_dim floats in shared memory. The 4 more than their width put what eight threads read
// into different banks.
template <int kDims32>
struct TileShape {
  static constexpr int kDims = 32 * kDims32;
  static constexpr int kStride = kDims + 4;
  static constexpr int kFloats = kBackwardTile * kStride;
};

struct TilePlace {
  int pair;   // of rows
  int other;  // of 8
};
__device__ __forceinline__ TilePlace tile_place() {
  return {static_cast<int>(threadIdx.x) / 8, static_cast<int>(threadIdx.x) % 8};
}

// Rows [0, n) by from(row), zeros behind them and behind head_dim. All threads call.
template <int kDims32, typename From>
__device__ void load_tile(float* to, int n, std::int64_t head_dim, const From& from) {
  using Shape = TileShape<kDims32>;
  for (int i = static_cast<int>(threadIdx.x); i < kBackwardTile * Shape::kDims;
       i += kBackwardThreads) {
    const int row = i / Shape::kDims;
    const int d = i % Shape::kDims;
    to[row * Shape::kStride + d] = row < n && d < head_dim ? from(row)[d] : 0.0F;
  }
}

// out[i][j]: the product of row 2 pair + i of a with row other + 8 j of b.
template <int kDims32>
__device__ __forceinline__ void tile_products(const float* a, const float* b, float (&out)[2][4]) {
  using Shape = TileShape<kDims32>;
  const TilePlace place = tile_place();
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) out[i][j] = 0.0F;
  }
  for (int d = 0; d < Shape::kDims; d += 4) {
    Floats4 left[2];
    Floats4 right[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      left[i] = *reinterpret_cast<const Floats4*>(a + (2 * place.pair + i) * Shape::kStride + d);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      right[j] = *reinterpret_cast<const Floats4*>(b + (place.other + 8 * j) * Shape::kStride + d);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) out[i][j] += left[i].at[c] * right[j].at[c];
      }
    }
  }
}

// What a thread sums up: rows 2 pair and the next one, dims 4 other + 32 j and the next three.
template <int kDims32>
struct TileSums {
  float at[2][kDims32][4];

  __device__ __forceinline__ void clear() {
    scale(0, 0.0F, true);
    scale(1, 0.0F, true);
  }
  // A row times `factor`, or that in its place.
  __device__ __forceinline__ void scale(int row, float factor, bool replaces = false) {
#pragma unroll
    for (int j = 0; j < kDims32; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) at[row][j][c] = replaces ? factor : at[row][j][c] * factor;
    }
  }
  // += weights times b, both whole tiles; the weight of row r and b's row i is
  // weights[r row_stride + i step].
  __device__ __forceinline__ void add(const float* weights, int row_stride, int step,
                                      const float* b) {
    const TilePlace place = tile_place();
    const float* first = weights + 2 * place.pair * row_stride;
    const float* values = b + 4 * place.other;
#pragma unroll 4
    for (int i = 0; i < kBackwardTile; ++i) {
      const float low = first[i * step];
      const float high = first[row_stride + i * step];
#pragma unroll
      for (int j = 0; j < kDims32; ++j) {
        const Floats4 value =
            *reinterpret_cast<const Floats4*>(values + i * TileShape<kDims32>::kStride + 32 * j);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          at[0][j][c] += low * value.at[c];
          at[1][j][c] += high * value.at[c];
        }
      }
    }
  }
  // Of one row, to(dim) = value, for the dims that exist.
  template <typename To>
  __device__ __forceinline__ void store(int row, std::int64_t head_dim, const To& to) const {
    const TilePlace place = tile_place();
#pragma unroll
    for (int j = 0; j < kDims32; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int d = 4 * place.other + 32 * j + c;
        if (d < head_dim) to(d, at[row][j][c]);
      }
    }
  }
};

// Over the eight threads that have the same rows. All 32 lanes of a warp call.
template <typename Combine>
__device__ __forceinline__ float reduce_eight(float value, Combine combine) {
  for (int mask = 4; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
  return value;
}

}  // namespace longhaul::cuda
