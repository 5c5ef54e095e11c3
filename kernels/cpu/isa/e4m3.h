// E4M3 codes as floats, a chunk of 4 kWidth at a time: bytes are spread over halves of 16 bits that
// are f16 numbers of a 256th of their value, since f16 has the same form with one more bit of
// exponent. Denormals stay exact and cost nothing; NaN codes are not seen (kernels/fp8_weights.h
// refuses them).
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kE4m3Chunk = 4 * kWidth;

// The lowest byte of each word.
LONGHAUL_INLINE Vec widen_low_e4m3(Words codes) {
  const Words magnitude = codes & 0x7fU;
  const Words normal = (magnitude << 20) + (120U << 23);
  const Vec steps = __builtin_convertvector(reinterpret_cast<Ints>(magnitude), Vec) * 0x1p-9F;
  const Words value = magnitude < 8U ? reinterpret_cast<Words>(steps) : normal;
  return reinterpret_cast<Vec>(value | (codes & 0x80U) << 24);
}

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))

constexpr float kE4m3Unit = 256.0F;  // what a widened 1 is worth

// Where code i of a chunk comes to lie: even codes first, then odd ones.
constexpr std::int64_t e4m3_place(std::int64_t i) { return i % 2 * (2 * kWidth) + i / 2; }

typedef std::int16_t Halves __attribute__((vector_size(kWidth * 4)));

LONGHAUL_INLINE void widen_halves(Halves halves, Vec& low, Vec& high) {
#if defined(__AVX512F__)
  const auto bits = reinterpret_cast<__m512i>(halves);
  low = _mm512_cvtph_ps(_mm512_castsi512_si256(bits));
  high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1));
#else
  const auto bits = reinterpret_cast<__m256i>(halves);
  low = _mm256_cvtph_ps(_mm256_castsi256_si128(bits));
  high = _mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1));
#endif
}

// out: values / kE4m3Unit, in the order of e4m3_place.
LONGHAUL_INLINE void widen_e4m3(Words codes, Vec (&out)[4]) {
  // The sign is shifted into its own copy and the bit after it, which is then cleared.
  constexpr auto kMask = static_cast<std::int16_t>(0xbf80);
  const auto even = reinterpret_cast<Halves>(codes << 8);
  const auto odd = reinterpret_cast<Halves>(codes);
  widen_halves((even >> 1) & kMask, out[0], out[1]);
  widen_halves((odd >> 1) & kMask, out[2], out[3]);
}

#else

constexpr float kE4m3Unit = 1.0F;

// Byte 0 of every word first, then byte 1, and so on.
constexpr std::int64_t e4m3_place(std::int64_t i) { return i % 4 * kWidth + i / 4; }

LONGHAUL_INLINE void widen_e4m3(Words codes, Vec (&out)[4]) {
  for (int byte = 0; byte < 4; ++byte) out[byte] = widen_low_e4m3(codes >> (8 * byte));
}

#endif

// Of n codes; zeros beyond them.
LONGHAUL_INLINE Words load_codes(const std::uint8_t* codes, std::int64_t n) {
  if (n >= kE4m3Chunk) return load_words(codes);
  Words words{};
  __builtin_memcpy(&words, codes, static_cast<std::size_t>(n));
  return words;
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
