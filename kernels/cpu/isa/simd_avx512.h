// AVX-512 (F, BW, DQ, VL): 16 floats. With BF16, pairs of bf16 are multiplied by VDPBF16PS, else
// they are widened. See simd.h.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr int kWidth = 16;
constexpr int kTileRows = 6;  // 6 x 4 accumulators, 4 vectors of the right side, 1 broadcast of 32
constexpr int kTileVectors = 4;
constexpr int kPackedRows = 12;  // 12 x 2 accumulators: half the loads of the right side
constexpr int kPackFromRows = kPackedRows;
typedef float Vec __attribute__((vector_size(64)));

// sum += x y, where sum is. (From the expression GCC 12 makes forms of the instruction that move
// sums from register to register and to memory.)
LONGHAUL_INLINE_SMALL void add_product(Vec& sum, Vec x, Vec y) {
  __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
}

// n in [1, 16]; lanes from n on are zero.
LONGHAUL_INLINE Vec load_first(const void* p, std::int64_t n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << n) - 1U), p);
}
LONGHAUL_INLINE void store_first(void* p, Vec v, std::int64_t n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << n) - 1U), v);
}
// 16 f16 as floats.
LONGHAUL_INLINE Vec load_halves(const std::uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// b where either is NaN, as the instruction does; likewise min.
LONGHAUL_INLINE_SMALL Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
LONGHAUL_INLINE_SMALL Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
LONGHAUL_INLINE Vec round(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
LONGHAUL_INLINE Vec square_root(Vec x) { return _mm512_sqrt_ps(x); }
LONGHAUL_INLINE Vec scale_by_power_of_two(Vec x, Vec n) { return _mm512_scalef_ps(x, n); }

// 2^x, exact where x is an integer: to 1e-4 relative by a polynomial of degree 3, for results that
// are rounded to bf16; to 1e-7 by one of degree 5, beside the rounding of x. x of at most 127;
// 2^-inf = 0, NaN stays NaN.
template <int kDegree>
LONGHAUL_INLINE Vec exp2_below(Vec x) {
  static_assert(kDegree == 3 || kDegree == 5);
  const Vec f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // x - floor(x)
  Vec p;
  if constexpr (kDegree == 3) {
    p = 0.077067042F * f + 0.227644991F;
    p = p * f + 0.695116786F;
  } else {
    p = 0.00186713007F * f + 0.00901703032F;
    p = p * f + 0.0557999131F;
    p = p * f + 0.24016445F;
    p = p * f + 0.693151312F;
  }
  return _mm512_scalef_ps(p * f + 1.0F, x);  // times 2^floor(x)
}

#if defined(__AVX512BF16__)
constexpr bool kHasBf16Pairs = true;
// sum + a_low b_low + a_high b_high for pairs of bf16.
typedef std::uint32_t WordsOfPairs __attribute__((vector_size(64)));
LONGHAUL_INLINE Vec add_pair_products(Vec sum, WordsOfPairs a, WordsOfPairs b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
// 16 floats to bf16, to nearest even, into 8 words.
LONGHAUL_INLINE void store_as_bf16(void* p, Vec v) {
  const __m256bh halves = _mm512_cvtneps_pbh(v);
  __builtin_memcpy(p, &halves, sizeof halves);
}
#else
constexpr bool kHasBf16Pairs = false;
#endif

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
