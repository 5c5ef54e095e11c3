// Rows of weights -> columns: what lies along a row in memory becomes steps of a product, and
// neighbouring rows (outputs) neighbouring columns, as the tiles of tile.h take their right side.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// The first, and the second, of each pair of groups of kDistance lanes of two rows.
template <int kDistance>
struct FirstGroups {
  static constexpr int of(int lane) {
    return (lane & kDistance) != 0 ? kWidth + lane - kDistance : lane;
  }
};
template <int kDistance>
struct SecondGroups {
  static constexpr int of(int lane) {
    return (lane & kDistance) != 0 ? kWidth + lane : lane + kDistance;
  }
};

// Transposes a square of vectors: halves of rows are exchanged at distance kWidth / 2, then
// quarters, and so on.
template <int kDistance>
LONGHAUL_INLINE void transpose(Vec (&rows)[kWidth]) {
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) {
    if ((i & kDistance) != 0) continue;
    const Vec a = rows[i];
    const Vec b = rows[i + kDistance];
    rows[i] = picked<FirstGroups<kDistance>>(a, b);
    rows[i + kDistance] = picked<SecondGroups<kDistance>>(a, b);
  }
  if constexpr (kDistance > 1) transpose<kDistance / 2>(rows);
}

// What a packed word is made of: kElements elements of a row. vector(): kWidth words. word(): one,
// of a row of which n elements are left; zeros beyond them.
struct Floats {
  using Element = float;
  static constexpr int kElements = 1;
  static LONGHAUL_INLINE Vec vector(const Element* p) { return load(p); }
  static LONGHAUL_INLINE float word(const Element* row, std::int64_t i, std::int64_t /*n*/) {
    return row[i];
  }
};
struct WidenedBf16 {
  using Element = std::uint16_t;
  static constexpr int kElements = 1;
  static LONGHAUL_INLINE Vec vector(const Element* p) {
    typedef std::uint16_t Halves __attribute__((vector_size(kWidth * 2)));
    Halves halves;
    __builtin_memcpy(&halves, p, sizeof halves);
    return reinterpret_cast<Vec>(__builtin_convertvector(halves, Words) << 16);
  }
  static LONGHAUL_INLINE float word(const Element* row, std::int64_t i, std::int64_t /*n*/) {
    std::uint16_t half;
    __builtin_memcpy(&half, row + i, sizeof half);
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float out;
    __builtin_memcpy(&out, &bits, sizeof out);
    return out;
  }
};
struct Bf16Pairs {
  using Element = std::uint16_t;
  static constexpr int kElements = 2;
  static LONGHAUL_INLINE Vec vector(const Element* p) { return load(p); }
  static LONGHAUL_INLINE float word(const Element* row, std::int64_t i, std::int64_t n) {
    float out = 0.0F;
    __builtin_memcpy(&out, row + 2 * i, n - 2 * i >= 2 ? 4 : 2);
    return out;
  }
};

template <typename Element>
struct PackedRows {
  const Element* rows;
  std::int64_t row_stride;
  std::int64_t n_rows;
  std::int64_t n_elements;  // of each row
};

// packed [words of a row, stride]: n_rows columns of each step.
template <typename Source>
void pack_columns(const PackedRows<typename Source::Element>& from, std::int64_t stride,
                  float* packed) {
  const std::int64_t n_words = quotient_up(from.n_elements, Source::kElements);
  const std::int64_t whole_rows = from.n_rows / kWidth * kWidth;
  const std::int64_t whole_words = from.n_elements / (Source::kElements * kWidth) * kWidth;
  for (std::int64_t row = 0; row < whole_rows; row += kWidth) {
    for (std::int64_t i = 0; i < whole_words; i += kWidth) {
      const auto* at = from.rows + row * from.row_stride + i * Source::kElements;
      Vec square[kWidth];
#pragma GCC unroll 16
      for (int r = 0; r < kWidth; ++r) square[r] = Source::vector(at + r * from.row_stride);
      transpose<kWidth / 2>(square);
#pragma GCC unroll 16
      for (int r = 0; r < kWidth; ++r) store(packed + (i + r) * stride + row, square[r]);
    }
  }
  for (std::int64_t row = 0; row < from.n_rows; ++row) {
    for (std::int64_t i = row < whole_rows ? whole_words : 0; i < n_words; ++i) {
      packed[i * stride + row] =
          Source::word(from.rows + row * from.row_stride, i, from.n_elements);
    }
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
