// What the words of a product's right side hold, and how a step of a tile multiplies them. See
// kernels/cpu/isa/tile.h.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/e4m3.h"
#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// Tall tiles pay where widening a word of the right side takes as long as multiplying it: it is
// widened for more rows.
constexpr bool kHasTallTiles = kWidth == 16;
// Of words that are widened to floats: with 16 registers, sums of more rows leave no room for
// those.
constexpr int kRowsOfWidened = kWidth == 16 ? kTileRows : 4;

// How a step multiplies: part<i>() for each of kParts, which widens a part of every word. kLanes:
// elements of the sum a step covers. kLeftWords: words of a it reads. kLeftStride: a_stride where
// it is known, so that addresses need no registers; else 0. kIntegers: on the left, each row in
// units of its own. kRowsInWide: up to so many rows, tiles are wide. kMostRows: of a tile that is
// neither wide nor tall. kTall: of more than kAskingRows they are tall. value(): what a sum is
// worth.
struct FloatSums {
  using Sum = Vec;
  static constexpr std::int64_t kLeftStride = 0;
  static constexpr bool kIntegers = false;
  static constexpr bool kTall = false;
  static constexpr int kMostRows = kTileRows;
  static constexpr int kParts = 1;
  static LONGHAUL_INLINE Vec value(Vec sum, float /*left_unit*/) { return sum; }
};
struct FloatProduct : FloatSums {
  static constexpr int kLanes = 1;
  static constexpr int kLeftWords = 1;
  static constexpr int kRowsInWide = kWidth == 16 ? 8 : 0;
  template <int kPart, int kRows, int kVectors>
  static LONGHAUL_INLINE void part(Vec (&sums)[kRows][kVectors], const float* a,
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
struct WidenedBf16Product : FloatSums {
  static constexpr bool kTall = kHasTallTiles;
  static constexpr int kMostRows = kRowsOfWidened;
  static constexpr int kParts = 2;
  static constexpr int kLanes = 2;
  static constexpr int kLeftWords = 2;
  static constexpr int kRowsInWide = kWidth == 8 ? 2 : 0;
  template <int kPart, int kRows, int kVectors>
  static LONGHAUL_INLINE void part(Vec (&sums)[kRows][kVectors], const float* a,
                                   std::int64_t a_stride, const Vec (&b)[kVectors]) {
    Vec half[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Words words = reinterpret_cast<Words>(b[v]);
      half[v] = kPart == 0 ? low_halves(words) : high_halves(words);
    }
    FloatProduct::part<0>(sums, a + kPart, a_stride, half);
  }
};

#if defined(__AVX512BF16__)
// Pairs of bf16 on both sides, multiplied by VDPBF16PS.
struct PairedBf16Product : FloatSums {
  static constexpr int kLanes = 2;
  static constexpr int kLeftWords = 1;
  static constexpr int kRowsInWide = 8;
  template <int kPart, int kRows, int kVectors>
  static LONGHAUL_INLINE void part(Vec (&sums)[kRows][kVectors], const float* a,
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

// Words of four E4M3 codes on the right, floats on the left. The caller applies the codes' scales.
struct WidenedFp8Product : FloatSums {
  static constexpr bool kTall = kHasTallTiles;
  static constexpr int kMostRows = kRowsOfWidened;
  static constexpr int kParts = 4;
  static constexpr int kLanes = 4;
  static constexpr int kLeftWords = 4;
  static constexpr int kRowsInWide = kWidth == 8 ? 2 : 0;
  template <int kPart, int kRows, int kVectors>
  static LONGHAUL_INLINE void part(Vec (&sums)[kRows][kVectors], const float* a,
                                   std::int64_t a_stride, const Vec (&b)[kVectors]) {
    Vec values[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      values[v] = widen_e4m3_byte<kPart>(reinterpret_cast<Words>(b[v]));
    FloatProduct::part<0>(sums, a + kPart, a_stride, values);
  }
};

#if defined(__AVX512BF16__)
// The same as pairs of bf16, which hold the codes exactly, with such pairs on the left.
struct PairedFp8Product : FloatSums {
  static constexpr bool kTall = kHasTallTiles;
  static constexpr int kParts = 2;
  static constexpr int kLanes = 4;
  static constexpr int kLeftWords = 2;
  static constexpr int kRowsInWide = 0;
  template <int kPart, int kRows, int kVectors>
  static LONGHAUL_INLINE void part(Vec (&sums)[kRows][kVectors], const float* a,
                                   std::int64_t a_stride, const Vec (&b)[kVectors]) {
    Vec pairs[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      pairs[v] = reinterpret_cast<Vec>(e4m3_pairs<kPart>(reinterpret_cast<Words>(b[v])));
    PairedBf16Product::part<0>(sums, a + kPart, a_stride, pairs);
  }
};
#endif

// Words of kCount unsigned codes of 8 or 4 bits on the right, as kernels/kv_block.h orders them;
// signed 16 bits on the left (pack_left). Sums are exact: 256 products with codes of 8 bits stay
// below 2^31. The caller applies scales and minima of the codes.
template <int kCount, std::int64_t kStride>
struct CodeProduct {
  using Sum = Ints;
  static constexpr std::int64_t kLeftStride = kStride;
  static constexpr bool kIntegers = true;
  static constexpr bool kTall = false;
  static constexpr int kMostRows = kTileRows;
  static constexpr int kParts = 1;  // more parts gained nothing
  static constexpr int kLanes = kCount;
  static constexpr int kLeftWords = kCount / 2;
  static constexpr int kRowsInWide = kWidth == 8 ? 1 : 0;
  static constexpr std::uint32_t kMask = kCount == 4 ? 0x00ff00ffU : 0x000f000fU;
  static LONGHAUL_INLINE Vec value(Ints sum, float left_unit) {
    return __builtin_convertvector(sum, Vec) * left_unit;
  }
  template <int kPart, int kRows, int kVectors>
  static LONGHAUL_INLINE void part(Ints (&sums)[kRows][kVectors], const float* a,
                                   std::int64_t a_stride, const Vec (&b)[kVectors]) {
#pragma GCC unroll 8
    for (int pair = 0; pair < kLeftWords; ++pair) {  // codes 0 and 2, 1 and 3, 4 and 6, 5 and 7
      const int shift = 8 * (pair % 2) + 4 * (pair / 2);
      Words codes[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        codes[v] = (reinterpret_cast<Words>(b[v]) >> shift) & kMask;
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Words x = broadcast_word(a + r * a_stride + pair);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[r][v] = add_products(sums[r][v], x, codes[v]);
      }
    }
  }
};
struct FirstTwoOfFour {
  static constexpr int of(int lane) { return lane / 2 * 4 % kWidth + lane % 2; }
};

// Of the integers on the left.
#if defined(LONGHAUL_AMX_RUNS)
constexpr float kMostLeft = 32639.0F;  // two signed bytes
#else
constexpr float kMostLeft = 32767.0F;
#endif

// kWidth numbers of at most kMostLeft -> 16-bit integers for CodeProduct, kWidth / 2 words.
LONGHAUL_INLINE void pack_left(Vec x, float* out) {
#if defined(__AVX512BW__)
  const __m256i halves = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(x));
  // Halves 0 and 2, 1 and 3 of each four.
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0f0e'0b0a'0d0c'0908, 0x0706'0302'0504'0100));
  const __m256i packed = _mm256_shuffle_epi8(halves, order);
#else
  const Words values = reinterpret_cast<Words>(__builtin_convertvector(round(x), Ints));
  const Words second = reinterpret_cast<Words>(exchanged<2>(reinterpret_cast<Vec>(values)));
  const Words pairs = (values & 0xffffU) | (second << 16);
  const Words packed = picked<FirstTwoOfFour>(pairs, pairs);
#endif
  __builtin_memcpy(out, &packed, kWidth / 2 * sizeof(float));
}

// The same of n floats, a multiple of 16; 1 / unit is what the largest magnitude takes to stay
// within kMostLeft.
LONGHAUL_INLINE void pack_left(const float* x, std::int64_t n, float inverse_unit, float* out) {
  for (std::int64_t i = 0; i < n; i += kWidth) pack_left(load(x + i) * inverse_unit, out + i / 2);
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
