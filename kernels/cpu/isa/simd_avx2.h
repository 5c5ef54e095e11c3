// AVX2 and FMA: 8 floats; pairs of bf16 are widened. See simd.h.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr int kWidth = 8;
constexpr bool kHasBf16Pairs = false;
constexpr int kTileRows = 6;  // 6 x 2 accumulators, 2 vectors of the right side, 1 broadcast of 16
constexpr int kTileVectors = 2;
constexpr int kPackedRows = kTileRows;
constexpr int kPackFromRows = 17;  // so many rows attention packs for: 16 were slower by a sixth
typedef float Vec __attribute__((vector_size(32)));

LONGHAUL_INLINE_SMALL void add_product(Vec& sum, Vec x, Vec y) { sum += x * y; }

// n in [1, 8]; lanes from n on are zero.
LONGHAUL_INLINE __m256i first_lanes(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
LONGHAUL_INLINE Vec load_first(const void* p, std::int64_t n) {
  return _mm256_maskload_ps(static_cast<const float*>(p), first_lanes(n));
}
LONGHAUL_INLINE void store_first(void* p, Vec v, std::int64_t n) {
  _mm256_maskstore_ps(static_cast<float*>(p), first_lanes(n), v);
}
// 8 f16 as floats.
LONGHAUL_INLINE Vec load_halves(const std::uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// b where either is NaN, as the instruction does; likewise min.
LONGHAUL_INLINE_SMALL Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
LONGHAUL_INLINE_SMALL Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
LONGHAUL_INLINE Vec round(Vec x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// x 2^n in two steps, so that neither power leaves the range of a float.
LONGHAUL_INLINE Vec scale_by_power_of_two(Vec x, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
  return x * _mm256_castsi256_ps(a) * _mm256_castsi256_ps(b);
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
