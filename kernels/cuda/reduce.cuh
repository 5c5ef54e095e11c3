// Sums and maxima over a warp or a thread block; every thread gets the result. All threads call.
#pragma once
#include "kernels/cuda/instructions.cuh"

namespace longhaul::cuda {

constexpr int kWarp = 32;

struct Add {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// NaN is not a maximum.
struct Larger {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }  // one instruction
};
struct Smaller {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

template <typename T, typename Combine>
__device__ T reduce_warp(T value, Combine combine) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
  return value;
}

// `shared` [threads / 32], not in use by anything else; may be reused after the next barrier.
template <typename T, typename Combine>
__device__ T reduce_block(T value, Combine combine, T* shared) {
  const int n_warps = static_cast<int>(blockDim.x) / kWarp;
  value = reduce_warp(value, combine);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();  // each warp's value is written before all are read
  value = shared[0];
  for (int i = 1; i < n_warps; ++i) value = combine(value, shared[i]);
  return value;
}

}  // namespace longhaul::cuda
