// Element types of tensors on disk and in memory, and the scalar conversions of bf16 and f16 (round
// to nearest even). The conversions here serve loading and tests; kernels have their own per
// instruction set.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace longhaul {

// Numbered because they reach files and the network; never renumber.
enum class DType : std::uint8_t { kF32 = 0, kF16 = 1, kBf16 = 2, kI8 = 3, kF64 = 4, kI4 = 5 };

std::size_t size_of(DType dtype);       // of an element, in bytes; int4 has no whole ones
std::string_view name_of(DType dtype);  // "f32", "f16", "bf16", "int8", "f64", "int4"

// Weights whose products are of integers: they lie in panels, and activations are quantised in
// groups of neighbouring inputs.
constexpr bool is_integer(DType dtype) { return dtype == DType::kI8 || dtype == DType::kI4; }

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

}  // namespace longhaul
