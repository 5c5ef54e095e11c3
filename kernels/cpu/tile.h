// The register-blocked matrix product under attention and linear:
//   c[r][j] = start + sum_i a[r][i] b[i][j]
// for a left side of few rows (queries, probabilities or activations) and a right side laid out
// as vectors of columns (keys of a K block, dims of a V block, packed weights). Both sides come in
// 32-bit words: the right side's words are floats, or pairs of bf16 along i.
//
//          columns: kTileVectors vectors          one step i: load the vectors of b[i] once,
//   rows   +-----+-----+-----+-----+              broadcast a[r][i] row by row, multiply-add.
//   kTile- | acc | acc | acc | acc |              Everything but a and b stays in registers.
//   Rows   | ... | ... | ... | ... |
#pragma once
#include <cstdint>

#include "kernels/cpu/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

enum class Start { kZero, kAdd, kScale };  // c starts as 0, as it is, or as c[r] * row_scale[r]

constexpr std::int64_t kPrefetchSteps = 16;

struct Product {
  const float* a;  // [n_rows, a_stride]; kLeftWords words a step
  std::int64_t a_stride;
  const float* b;  // [n_steps, b_stride] words
  std::int64_t b_stride;
  float* c;  // [n_rows, c_stride]
  std::int64_t c_stride;
  std::int64_t n_steps;
  Start start;
  const float* row_scale;  // [n_rows], for kScale
};

// How a step multiplies. kLanes: elements of the sum a step covers. kLeftWords: words of a it
// reads.
struct FloatProduct {
  static constexpr int kLanes = 1;
  static constexpr int kLeftWords = 1;
  template <int kRows, int kVectors>
  static LONGHAUL_INLINE void step(Vec (&sums)[kRows][kVectors], const float* a,
                                   std::int64_t a_stride, const Vec (&b)[kVectors]) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec x = broadcast(a[r * a_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] += x * b[v];
    }
  }
};

// bf16 on the right, floats on the left (rounded to bf16 or not: the caller's choice).
struct WidenedBf16Product {
  static constexpr int kLanes = 2;
  static constexpr int kLeftWords = 2;
  template <int kRows, int kVectors>
  static LONGHAUL_INLINE void step(Vec (&sums)[kRows][kVectors], const float* a,
                                   std::int64_t a_stride, const Vec (&b)[kVectors]) {
    Vec half[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) half[v] = low_halves(reinterpret_cast<Words>(b[v]));
    FloatProduct::step(sums, a, a_stride, half);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) half[v] = high_halves(reinterpret_cast<Words>(b[v]));
    FloatProduct::step(sums, a + 1, a_stride, half);
  }
};

#if defined(__AVX512BF16__)
// Pairs of bf16 on both sides, multiplied by VDPBF16PS.
struct PairedBf16Product {
  static constexpr int kLanes = 2;
  static constexpr int kLeftWords = 1;
  template <int kRows, int kVectors>
  static LONGHAUL_INLINE void step(Vec (&sums)[kRows][kVectors], const float* a,
                                   std::int64_t a_stride, const Vec (&b)[kVectors]) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Words x = broadcast_word(a + r * a_stride);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = add_pair_products(sums[r][v], x, reinterpret_cast<Words>(b[v]));
      }
    }
  }
};
#else
using PairedBf16Product = WidenedBf16Product;  // never chosen: kHasBf16Pairs is false
#endif

template <bool kPartial>
LONGHAUL_INLINE Vec load_columns(const float* p, std::int64_t n_last) {
  if constexpr (kPartial) return load_first(p, n_last);
  return load(p);
}

// One tile; kPartial: a single vector of which only the first n_last columns exist.
template <typename Format, int kRows, int kVectors, bool kPartial>
void multiply_tile(const Product& product, std::int64_t n_last) {
  const Product p = product;  // a copy: stores to c cannot change it
  Vec sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Vec scale = p.start == Start::kScale ? broadcast(p.row_scale[r]) : broadcast(1.0F);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = p.start == Start::kZero
                       ? Vec{}
                       : load_columns<kPartial>(p.c + r * p.c_stride + v * kWidth, n_last) * scale;
    }
  }
  const float* a = p.a;
  const float* b = p.b;
  const std::int64_t a_stride = p.a_stride;
  for (std::int64_t i = 0; i < p.n_steps; ++i) {
    Vec right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = load_columns<kPartial>(b + v * kWidth, n_last);
    // Few rows wait for memory, and the hardware's prefetcher stops at page ends and at jumps from
    // block to block. Prefetching past the end is harmless.
    if constexpr (kRows <= 4 && kVectors * kWidth >= 16) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors * kWidth / 16; ++v) {
        __builtin_prefetch(b + kPrefetchSteps * p.b_stride + v * 16);
      }
    }
    Format::template step<kRows, kVectors>(sums, a, a_stride, right);
    a += Format::kLeftWords;
    b += p.b_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* to = p.c + r * p.c_stride + v * kWidth;
      if constexpr (kPartial) {
        store_first(to, sums[r][v], n_last);
      } else {
        store(to, sums[r][v]);
      }
    }
  }
}

template <typename Format, int kRows, int kVectors, bool kPartial>
LONGHAUL_INLINE void multiply_rows(std::int64_t n_rows, const Product& p, std::int64_t n_last) {
  if (n_rows == kRows) {
    multiply_tile<Format, kRows, kVectors, kPartial>(p, n_last);
  } else if constexpr (kRows > 1) {
    multiply_rows<Format, kRows - 1, kVectors, kPartial>(n_rows, p, n_last);
  }
}

// All rows, in groups of nearly equal size, against one group of columns.
template <typename Format, int kVectors, bool kPartial>
void multiply_columns(std::int64_t n_rows, const Product& p, std::int64_t n_last) {
  const std::int64_t n_groups = (n_rows + kTileRows - 1) / kTileRows;
  Product part = p;
  for (std::int64_t group = 0; group < n_groups; ++group) {
    const std::int64_t begin = group * n_rows / n_groups;
    const std::int64_t end = (group + 1) * n_rows / n_groups;
    part.a = p.a + begin * p.a_stride;
    part.c = p.c + begin * p.c_stride;
    if (p.start == Start::kScale) part.row_scale = p.row_scale + begin;
    multiply_rows<Format, kTileRows, kVectors, kPartial>(end - begin, part, n_last);
  }
}

// c[n_rows][n_columns]; reads of b stay within its n_columns words.
template <typename Format>
void multiply(std::int64_t n_rows, std::int64_t n_columns, const Product& p) {
  constexpr int kMost = kTileVectors * kWidth;
  Product part = p;
  std::int64_t left = n_columns;
  for (; left >= kMost; left -= kMost, part.b += kMost, part.c += kMost) {
    multiply_columns<Format, kTileVectors, false>(n_rows, part, 0);
  }
  if constexpr (kTileVectors >= 4) {
    if (left >= 2 * kWidth) {
      multiply_columns<Format, 2, false>(n_rows, part, 0);
      left -= 2 * kWidth, part.b += 2 * kWidth, part.c += 2 * kWidth;
    }
  }
  if (left >= kWidth) {
    multiply_columns<Format, 1, false>(n_rows, part, 0);
    left -= kWidth, part.b += kWidth, part.c += kWidth;
  }
  if (left > 0) multiply_columns<Format, 1, true>(n_rows, part, left);
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
