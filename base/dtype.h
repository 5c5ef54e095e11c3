// Element types of tensors on disk and in memory, and the scalar conversions of bf16, f16 and fp8
// (round to nearest even). The conversions here serve loading and tests; kernels have their own per
// instruction set.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace longhaul {

// Numbered because they reach files and the network; never renumber.
enum class DType : std::uint8_t {
  kF32 = 0,
  kF16 = 1,
  kBf16 = 2,
  kI8 = 3,
  kF64 = 4,
  kI4 = 5,
  kF8E4m3 = 6
};

std::size_t size_of(DType dtype);       // of an element, in bytes; int4 has no whole ones
std::string_view name_of(DType dtype);  // "f32", "f16", "bf16", "int8", "f64", "int4", "fp8"

// Weights whose products are of integers: they lie in panels, and activations are quantised in
// groups of neighbouring inputs.
constexpr bool is_integer(DType dtype) { return dtype == DType::kI8 || dtype == DType::kI4; }

// Where a model's layers have matrices of `dtype`: the types of its embedding table, which is
// looked up and not multiplied, and of the matrix before its logits, which published models with
// fp8 layers leave in bf16.
constexpr DType table_type(DType dtype) {
  return is_integer(dtype) || dtype == DType::kF8E4m3 ? DType::kBf16 : dtype;
}
constexpr DType head_type(DType dtype) { return dtype == DType::kF8E4m3 ? DType::kBf16 : dtype; }

struct BFloat16 {
  std::uint16_t bits = 0;
};
struct Float16 {
  std::uint16_t bits = 0;
};

inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
BFloat16 to_bf16(float value);  // NaN stays NaN
float to_float(Float16 value);
Float16 to_f16(float value);

// E4M3 in its "fn" form, F8_E4M3 of safetensors: a sign, four bits of exponent (bias 7), three of
// mantissa; denormals (multiples of 2^-9), no infinities, 0x7f and 0xff are NaN. [OCP 8-bit
// Floating Point Specification (OFP8), 2023]
struct Float8E4m3 {
  std::uint8_t bits = 0;
};
inline constexpr float kLargestE4m3 = 448.0F;
float to_float(Float8E4m3 value);
Float8E4m3 to_e4m3(float value);  // larger magnitudes become the largest; NaN stays NaN

}  // namespace longhaul
