#include "base/dtype.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace longhaul {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF16:
      return 2;
    case DType::kBf16:
      return 2;
    case DType::kI8:
    case DType::kF8E4m3:
      return 1;
    case DType::kF64:
      return 8;
    case DType::kI4:
      break;
  }
  throw Error(ErrorCode::kInternal, "size_of: a dtype without whole bytes");
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBf16:
      return "bf16";
    case DType::kI8:
      return "int8";
    case DType::kF64:
      return "f64";
    case DType::kI4:
      return "int4";
    case DType::kF8E4m3:
      return "fp8";
  }
  return "unknown";
}

BFloat16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};  // quiet the NaN, keep its sign
  }
  const std::uint32_t rounding = 0x7fffU + ((bits >> 16) & 1U);
  return {static_cast<std::uint16_t>((bits + rounding) >> 16)};
}

float to_float(Float16 value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  const int exponent = (value.bits >> 10) & 0x1f;
  const std::uint32_t mantissa = value.bits & 0x3ffU;
  if (exponent == 0x1f) {
    return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  }
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact in float
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (static_cast<std::uint32_t>(exponent + 112) << 23) |
                              (mantissa << 13));
}

Float16 to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  if (std::isnan(value)) {
    return {static_cast<std::uint16_t>(sign | 0x7e00U)};
  }
  const float magnitude = std::fabs(value);
  if (magnitude >=
      65520.0F) {  // halfway between the largest f16 and the next power of two rounds to infinity
    return {static_cast<std::uint16_t>(sign | 0x7c00U)};
  }
  if (magnitude < 0x1p-14F) {  // subnormal: a multiple of 2^-24; nearbyint rounds to even
    const auto steps = static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
    return {static_cast<std::uint16_t>(sign | steps)};
  }
  const std::uint32_t rounding = 0xfffU + ((bits >> 13) & 1U);
  const std::uint32_t rounded = ((bits & 0x7fffffffU) + rounding) >> 13;
  return {static_cast<std::uint16_t>(sign | (rounded - (112U << 10)))};
}

float to_float(Float8E4m3 value) {
  const int magnitude = value.bits & 0x7f;
  if (magnitude == 0x7f) {
    return std::copysign(std::numeric_limits<float>::quiet_NaN(),
                         (value.bits & 0x80) != 0 ? -1.0F : 1.0F);
  }
  const int exponent = magnitude >> 3;
  const int mantissa = magnitude & 7;
  const float out = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (value.bits & 0x80) != 0 ? -out : out;
}

Float8E4m3 to_e4m3(float value) {
  const auto sign = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value) >> 24 & 0x80U);
  if (std::isnan(value)) return {static_cast<std::uint8_t>(sign | 0x7fU)};
  const float magnitude = std::min(std::fabs(value), kLargestE4m3);
  if (magnitude < 0x1p-6F) {  // denormal: a multiple of 2^-9; nearbyint rounds to even
    const auto steps = static_cast<std::uint8_t>(std::nearbyint(magnitude * 0x1p9F));
    return {static_cast<std::uint8_t>(sign | steps)};
  }
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  const std::uint32_t rounded = (bits + 0x7ffffU + (bits >> 20 & 1U)) >> 20;
  return {static_cast<std::uint8_t>(sign | (rounded - (120U << 3)))};
}

}  // namespace longhaul
