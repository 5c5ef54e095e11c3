// E4M3 codes (base/dtype.h) as kernels make and read them: by integers alone, since only chips from
// 8.9 on have instructions for them; the CPU's values, to the bit.
#pragma once
#include "kernels/cuda/instructions.cuh"

namespace longhaul::cuda {

// Exponent and mantissa are a float's, but for a bias of 7 where floats have 127.
__device__ __forceinline__ float float_of_e4m3(std::uint32_t code) {
  const float magnitude = __uint_as_float((code & 0x7fU) << 20U) * 0x1p120F;
  return __uint_as_float(__float_as_uint(magnitude) | (code & 0x80U) << 24U);
}

// Those in bytes `first` and first + 1 of a word as two bf16, which hold them exactly: exponent and
// mantissa in their places make a 2^120th of the value.
__device__ __forceinline__ std::uint32_t bf16_of_e4m3(std::uint32_t codes, int first) {
  const std::uint32_t which = first == 0 ? 0x1404U : 0x3424U;
  const std::uint32_t upper = choose_bytes(codes, 0U, which);  // in the upper bytes of halves
  const std::uint32_t small = (upper & 0x80008000U) | (upper >> 4U & 0x07f007f0U);
  return multiply_bf16_pairs(small, 0x7b807b80U);  // 2^120, twice
}

// To the nearest, halves to even; |x| is at most 448, or a float's rounding more.
__device__ __forceinline__ std::uint32_t e4m3_of_float(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  const std::uint32_t sign = bits >> 24U & 0x80U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude < 0x3c800000U) {  // below 2^-6: a multiple of 2^-9
    return sign | static_cast<std::uint32_t>(rintf(__uint_as_float(magnitude) * 0x1p9F));
  }
  return sign | (((magnitude + 0x7ffffU + (magnitude >> 20U & 1U)) >> 20U) - (120U << 3U));
}

// The f16 bits of the smallest power of two, from 2^-24 to 2^15, with which this magnitude is at
// most 448; 0 for 0.
__device__ __forceinline__ std::uint16_t e4m3_scale(float largest) {
  const std::uint32_t bits = __float_as_uint(largest);
  if (bits == 0) return 0;
  // largest is below 2^exponent, and above 7/8 of it where the mantissa is more than 3/4.
  const int exponent = static_cast<int>(bits >> 23U) - 126;
  const int least = exponent - ((bits & 0x7fffffU) > 0x600000U ? 8 : 9);
  const int power = least < -24 ? -24 : least > 15 ? 15 : least;
  return static_cast<std::uint16_t>(power < -14 ? 1U << static_cast<unsigned>(power + 24)
                                                : static_cast<unsigned>(power + 15) << 10U);
}

}  // namespace longhaul::cuda
