// Any machine: 4 floats through the compiler's vector extension (SSE2 on x86-64, NEON on ARM). See
// simd.h.
#pragma once
#include <cstdint>

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr int kWidth = 4;
constexpr bool kHasBf16Pairs = false;
constexpr int kTileRows = 4;
constexpr int kTileVectors = 2;
constexpr int kPackedRows = kTileRows;
constexpr int kPackFromRows = kPackedRows;
typedef float Vec __attribute__((vector_size(16)));

LONGHAUL_INLINE_SMALL void add_product(Vec& sum, Vec x, Vec y) { sum += x * y; }

// n in [1, 4]; lanes from n on are zero.
LONGHAUL_INLINE Vec load_first(const void* p, std::int64_t n) {
  Vec v{};
  __builtin_memcpy(&v, p, static_cast<std::size_t>(n) * 4);
  return v;
}
LONGHAUL_INLINE void store_first(void* p, Vec v, std::int64_t n) {
  __builtin_memcpy(p, &v, static_cast<std::size_t>(n) * 4);
}
// 4 f16 as floats. Not by a product with a denormal, which may count as zero.
LONGHAUL_INLINE Vec load_halves(const std::uint16_t* p) {
  Vec out{};
  for (int lane = 0; lane < kWidth; ++lane) {
    const std::uint32_t sign = static_cast<std::uint32_t>(p[lane] & 0x8000) << 16;
    const std::uint32_t magnitude = p[lane] & 0x7fff;
    if (magnitude < 0x400) {  // a multiple of 2^-24
      out[lane] = static_cast<float>(magnitude) * (sign != 0 ? -0x1p-24F : 0x1p-24F);
      continue;
    }
    const std::uint32_t exponent = magnitude >= 0x7c00 ? 0x38000000U + 0x38000000U : 0x38000000U;
    const std::uint32_t bits = sign | ((magnitude << 13) + exponent);
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    out[lane] = value;
  }
  return out;
}
// b where either is NaN; likewise min.
LONGHAUL_INLINE_SMALL Vec max(Vec a, Vec b) { return a > b ? a : b; }
LONGHAUL_INLINE_SMALL Vec min(Vec a, Vec b) { return a < b ? a : b; }
// To the nearest integer, |x| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction.
LONGHAUL_INLINE Vec round(Vec x) { return (x + 12582912.0F) - 12582912.0F; }
// x 2^n in two steps, so that neither power leaves the range of a float.
LONGHAUL_INLINE Vec scale_by_power_of_two(Vec x, Vec n) {
  typedef std::int32_t Whole __attribute__((vector_size(16)));
  Whole whole = reinterpret_cast<Whole>(n + 12582912.0F) - 0x4b400000;
  const Whole half = whole >> 1;
  const Whole rest = whole - half;
  return x * reinterpret_cast<Vec>((half + 127) << 23) * reinterpret_cast<Vec>((rest + 127) << 23);
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
