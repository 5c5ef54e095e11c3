// Memory filled with random numbers for kernels to work on: the same for the same seed. Fixed
// patterns would do for plain timing, but whether scores are alike or far apart changes what
// attention does, so their spread must be known. No denormals.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace longhaul {

// Uniform with mean 0 and this standard deviation.
void fill_random(std::span<float> out, float deviation, std::uint64_t seed);

// n values of type kF32 or kBf16.
Tensor<std::byte, 1> random_values(DType dtype, std::int64_t n, float deviation,
                                   std::uint64_t seed);

}  // namespace longhaul
