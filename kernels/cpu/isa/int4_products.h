// Sums of products of 4-bit codes with int8 activations in 32-bit lanes: a step multiplies 4 codes
// of each lane with the same 4 activations. Codes are bytes of [0, 15], so small that without
// VPDPBUSD sums of 16 bits hold kInt4SumSteps steps. Exact with every instruction set. Only files
// under kernels/cpu include this.
#pragma once
#include "base/int4_format.h"
#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// Steps of which a sum may have that many at most: 2 products of 15 * 127 for each, below 2^15.
constexpr std::int64_t kInt4SumSteps = 8;
static_assert(kInt4Run == kInt4SumSteps * kInt8Step);

// The codes of the two steps of a line: inputs 0 to 3, inputs 4 to 7.
template <int kStep>
LONGHAUL_INLINE Words codes_of_step(Words line) {
  return (kStep == 0 ? line : line >> 4) & 0x0f0f0f0fU;
}

#if defined(__AVX512VNNI__)

typedef Ints Int4Sum;
// `minus`: what all codes' common part adds to the sum.
LONGHAUL_INLINE Int4Sum begin_int4_sum(std::int32_t minus) { return Ints{} - minus; }
LONGHAUL_INLINE Int4Sum add_int4_products(Int4Sum sum, Words codes, Words x) {
  return reinterpret_cast<Ints>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum),
                                                    reinterpret_cast<__m512i>(codes),
                                                    reinterpret_cast<__m512i>(x)));
}
LONGHAUL_INLINE Ints end_int4_sum(Int4Sum sum, std::int32_t /*minus*/) { return sum; }

#else

typedef std::int16_t Int4Sum __attribute__((vector_size(kWidth * 4)));
LONGHAUL_INLINE Int4Sum begin_int4_sum(std::int32_t /*minus*/) { return Int4Sum{}; }
LONGHAUL_INLINE Int4Sum add_int4_products(Int4Sum sum, Words codes, Words x) {
#if defined(__AVX512BW__)
  return sum + reinterpret_cast<Int4Sum>(_mm512_maddubs_epi16(reinterpret_cast<__m512i>(codes),
                                                              reinterpret_cast<__m512i>(x)));
#elif defined(__AVX2__)
  return sum + reinterpret_cast<Int4Sum>(_mm256_maddubs_epi16(reinterpret_cast<__m256i>(codes),
                                                              reinterpret_cast<__m256i>(x)));
#else
  const auto c = reinterpret_cast<Int4Sum>(codes);
  const auto v = reinterpret_cast<Int4Sum>(x);
  return sum + (c & 0xff) * ((v << 8) >> 8) + (c >> 8) * (v >> 8);
#endif
}
// The two sums of each lane.
LONGHAUL_INLINE Ints end_int4_sum(Int4Sum sum, std::int32_t minus) {
#if defined(__AVX512BW__)
  return reinterpret_cast<Ints>(
             _mm512_madd_epi16(reinterpret_cast<__m512i>(sum), _mm512_set1_epi16(1))) -
         minus;
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(
             _mm256_madd_epi16(reinterpret_cast<__m256i>(sum), _mm256_set1_epi16(1))) -
         minus;
#else
  const auto pairs = reinterpret_cast<Ints>(sum);
  return ((pairs << 16) >> 16) + (pairs >> 16) - minus;
#endif
}

#endif

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
