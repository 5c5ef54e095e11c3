// Sums of products of int8 in 32-bit lanes: a step multiplies 4 weights of each lane with the same
// 4 activations. Weights are unsigned bytes (their value plus 128), activations signed ones. Exact
// with every instruction set. Only files under kernels/cpu include this.
#pragma once
#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

#if defined(__AVX512VNNI__)

constexpr bool kHasInt8Dot = true;
// Bytes of a step's activations in memory: the 4 of them.
constexpr std::int64_t kInt8LeftBytes = 4;
struct Int8Left {
  Words all;
};
struct Int8Right {
  Words all;
};
LONGHAUL_INLINE Int8Left load_int8_left(const void* p) { return {broadcast_word(p)}; }
LONGHAUL_INLINE Int8Right unpack_int8(Words weights) { return {weights}; }
LONGHAUL_INLINE Ints add_int8_products(Ints sum, Int8Right w, Int8Left x) {
  return reinterpret_cast<Ints>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum),
                                                    reinterpret_cast<__m512i>(w.all),
                                                    reinterpret_cast<__m512i>(x.all)));
}

#else

constexpr bool kHasInt8Dot = false;
// As 16 bits each: the pair of elements 0 and 2, then that of 1 and 3. (VPMADDUBSW would take
// bytes, but its sums of two products saturate.)
constexpr std::int64_t kInt8LeftBytes = 8;
struct Int8Left {
  Words even, odd;
};
struct Int8Right {
  Words even, odd;
};
LONGHAUL_INLINE Int8Left load_int8_left(const void* p) {
  return {broadcast_word(p), broadcast_word(static_cast<const char*>(p) + 4)};
}
LONGHAUL_INLINE Int8Right unpack_int8(Words weights) {
  return {weights & 0x00ff00ffU, (weights >> 8) & 0x00ff00ffU};
}
// a_low b_low + a_high b_high of the signed halves.
LONGHAUL_INLINE Ints pair_products(Words a, Words b) {
#if defined(__AVX512BW__)
  return reinterpret_cast<Ints>(
      _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(
      _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  const Ints a_low = reinterpret_cast<Ints>(a << 16) >> 16;
  const Ints b_low = reinterpret_cast<Ints>(b << 16) >> 16;
  return a_low * b_low + (reinterpret_cast<Ints>(a) >> 16) * (reinterpret_cast<Ints>(b) >> 16);
#endif
}
LONGHAUL_INLINE Ints add_int8_products(Ints sum, Int8Right w, Int8Left x) {
  return sum + pair_products(w.even, x.even) + pair_products(w.odd, x.odd);
}

#endif

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
