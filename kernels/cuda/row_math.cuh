// Arithmetic of rows that several kernels do on their way: norms, RoPE, SwiGLU. Each is written
// once, so a kernel that does more in one launch has the bits of those that do it one by one.
#pragma once
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/reduce.cuh"

namespace longhaul::cuda {

// Norms of rows up to this width are a warp's work, of wider ones a thread block's.
constexpr std::int64_t kMostNormOfAWarp = 512;

__device__ __forceinline__ float norm_factor(float square, std::int64_t width, float eps) {
  return 1.0F / sqrtf(square / static_cast<float>(width) + eps);
}
// What x [width] is multiplied by, besides the norm's weight; by one warp.
__device__ __forceinline__ float norm_factor_of_warp(const float* x, std::int64_t width,
                                                     float eps) {
  float square = 0.0F;
#pragma unroll 4
  for (auto i = static_cast<int>(threadIdx.x % kWarp); i < static_cast<int>(width); i += kWarp)
    square += x[i] * x[i];
  return norm_factor(reduce_warp(square, Add()), width, eps);
}
// The same by a thread block; `shared` as reduce_block has it.
__device__ __forceinline__ float norm_factor_of_block(const float* x, std::int64_t width, float eps,
                                                      float* shared) {
  float square = 0.0F;
#pragma unroll 8  // so many loads are under way
  for (auto i = static_cast<int>(threadIdx.x); i < static_cast<int>(width);
       i += static_cast<int>(blockDim.x))
    square += x[i] * x[i];
  return norm_factor(reduce_block(square, Add(), shared), width, eps);
}

// A pair of dims after RoPE.
struct DimPair {
  float low;
  float high;
};
__device__ __forceinline__ DimPair turned(float low, float high, float cos, float sin) {
  return {low * cos - high * sin, high * cos + low * sin};
}

__device__ __forceinline__ float activated(float gate, float up) {
  return gate / (1.0F + expf(-gate)) * up;
}

}  // namespace longhaul::cuda
