// E4M3 codes as floats, a chunk of 4 kWidth at a time: bytes are spread over halves of 16 bits that
// are f16 numbers of a 256th of their value, since f16 has the same form with one more bit of
// exponent. Denormals stay exact and cost nothing; NaN codes are not seen (kernels/fp8_weights.h
// refuses them).
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kE4m3Chunk = 4 * kWidth;

// Byte kByte of each word. With 120 added to its exponent a code is its value, if it is normal;
// else it is between 2^-7 and 2^-6, for m 2^-9, and twice it less 2^-6 is right and smaller.
template <int kByte>
LONGHAUL_INLINE Vec widen_e4m3_byte(Words codes) {
  const Words top = codes << (24 - 8 * kByte);
  const Vec normal = reinterpret_cast<Vec>(((top >> 4) & (0x7fU << 20)) + (120U << 23));
  const Vec magnitude = min(normal, normal * 2.0F - 0x1p-6F);
  return reinterpret_cast<Vec>(reinterpret_cast<Words>(magnitude) | (top & (1U << 31)));
}

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))

constexpr float kE4m3Unit = 256.0F;  // what a widened 1 is worth

// Where code i of a chunk comes to lie: even codes first, then odd ones.
constexpr std::int64_t e4m3_place(std::int64_t i) { return i % 2 * (2 * kWidth) + i / 2; }

typedef std::int16_t Halves __attribute__((vector_size(kWidth * 4)));

// The lower or the upper half of them.
template <int kUpper>
LONGHAUL_INLINE Vec widen_halves(Halves halves) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(reinterpret_cast<__m512i>(halves), kUpper));
#else
  return _mm256_cvtph_ps(_mm256_extracti128_si256(reinterpret_cast<__m256i>(halves), kUpper));
#endif
}

// Part kPart of a chunk, of the four that e4m3_place has one after the other: values / kE4m3Unit.
template <int kPart>
LONGHAUL_INLINE Vec widen_e4m3(Words codes) {
  // The sign is shifted into its own copy and the bit after it, which is then cleared.
  constexpr auto kMask = static_cast<std::int16_t>(0xbf80);
  const Words shifted = kPart < 2 ? codes << 8 : codes;
  return widen_halves<kPart % 2>((reinterpret_cast<Halves>(shifted) >> 1) & kMask);
}

#else

constexpr float kE4m3Unit = 1.0F;

// Byte 0 of every word first, then byte 1, and so on.
constexpr std::int64_t e4m3_place(std::int64_t i) { return i % 4 * kWidth + i / 4; }

template <int kPart>
LONGHAUL_INLINE Vec widen_e4m3(Words codes) {
  return widen_e4m3_byte<kPart>(codes);
}

#endif

#if defined(__AVX512BF16__)
// Bytes 2 kHalf and 2 kHalf + 1 of each word as a pair of bf16, exactly. A code in the upper byte
// of 16 bits has bf16's form once it is moved by one bit of exponent and 120 is added to that; what
// is not normal, m 2^-9, comes from a table.
template <int kHalf>
LONGHAUL_INLINE Words e4m3_pairs(Words codes) {
  constexpr std::uint32_t kBytes = kHalf == 0 ? 0x0101'0000U : 0x0303'0202U;
  const Words places =
      kBytes + 0x0404'0404U * Words{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
  const __m512i twice =
      _mm512_shuffle_epi8(reinterpret_cast<__m512i>(codes), reinterpret_cast<__m512i>(places));
  const __m512i moved = _mm512_and_si512(_mm512_srli_epi16(twice, 4), _mm512_set1_epi16(0x07f0));
  const __m512i normal = _mm512_add_epi16(moved, _mm512_set1_epi16(120 << 7));
  const __mmask32 tiny = _mm512_testn_epi16_mask(twice, _mm512_set1_epi16(0x7800));
  const __m512i multiples = _mm512_castsi128_si512(
      _mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
  // Looked up by the lowest 5 bits, of which those of the exponent are 0.
  const __m512i magnitude = _mm512_mask_permutexvar_epi16(normal, tiny, twice, multiples);
  constexpr int kFirstOrBothOthers = 0xf8;
  return reinterpret_cast<Words>(_mm512_ternarylogic_epi32(
      magnitude, twice, _mm512_set1_epi16(static_cast<std::int16_t>(0x8000)), kFirstOrBothOthers));
}
#endif

// Calls each(std::integral_constant<int, i>) for the four parts of a chunk, or bytes of a word.
template <int kPart = 0, typename Each>
LONGHAUL_INLINE void for_each_quarter(const Each& each) {
  each(std::integral_constant<int, kPart>());
  if constexpr (kPart < 3) for_each_quarter<kPart + 1>(each);
}

// Of n codes; zeros beyond them.
LONGHAUL_INLINE Words load_codes(const std::uint8_t* codes, std::int64_t n) {
  if (n >= kE4m3Chunk) return load_words(codes);
  Words words{};
  __builtin_memcpy(&words, codes, static_cast<std::size_t>(n));
  return words;
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
