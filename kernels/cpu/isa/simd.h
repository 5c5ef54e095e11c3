// Vectors of floats for the CPU kernels: one set of names, three implementations, chosen by the
// instruction set that a file is compiled for. Only files under kernels/cpu include this.
//
// Everything in here and in those files is in an anonymous namespace or in the namespace of its
// instruction set. An inline function with external linkage would be merged by the linker with its
// twins of other instruction sets, and a machine without AVX-512 would then run the AVX-512 copy
// (tests/unit/kernels/check_isa_symbols.py looks for such symbols).
#pragma once
#include <cstdint>
#include <utility>

#ifndef LONGHAUL_ISA_NAMESPACE  // set by kernels/CMakeLists.txt
#define LONGHAUL_ISA_NAMESPACE baseline
#endif

// For what takes an instruction or two: a call costs more, and with the address sanitizer most of
// a kernel.
#define LONGHAUL_INLINE_SMALL inline __attribute__((always_inline))
#ifdef LONGHAUL_SHORT_FUNCTIONS  // set by kernels/CMakeLists.txt
#define LONGHAUL_INLINE inline
#else
#define LONGHAUL_INLINE LONGHAUL_INLINE_SMALL
#endif

#if defined(__AVX512F__)
#include "kernels/cpu/isa/simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "kernels/cpu/isa/simd_avx2.h"
#else
#include "kernels/cpu/isa/simd_baseline.h"
#endif

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// A vector of 32-bit words: floats' bit patterns, or pairs of bf16 (the lower half first).
typedef std::uint32_t Words __attribute__((vector_size(kWidth * 4)));
typedef std::int32_t Ints __attribute__((vector_size(kWidth * 4)));

constexpr float kInfinity = __builtin_inff();
constexpr float kLog2E = 1.44269504088896341F;

// While it lives, this thread takes numbers too small for a normal float for zero. Far from the
// best key, probabilities fall into that range, where every multiply-add costs a hundred times as
// much.
class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : before_(__builtin_ia32_stmxcsr()) {
    __builtin_ia32_ldmxcsr(before_ | 0x8040U);  // results (FTZ) and operands (DAZ)
  }
  ~FlushDenormals() { __builtin_ia32_ldmxcsr(before_); }

 private:
  unsigned before_;

 public:
#else
  FlushDenormals() {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
};

LONGHAUL_INLINE_SMALL Vec load(const void* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
// Elements i to i + kWidth of a row of n; behind its last one they are zero.
LONGHAUL_INLINE Vec load_up_to(const float* x, std::int64_t n, std::int64_t i) {
  if (i + kWidth <= n) return load(x + i);
  return i < n ? load_first(x + i, n - i) : Vec{};
}
LONGHAUL_INLINE_SMALL Words load_words(const void* p) {
  Words v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
LONGHAUL_INLINE_SMALL void store(void* p, Vec v) { __builtin_memcpy(p, &v, sizeof v); }
LONGHAUL_INLINE_SMALL Vec broadcast(float x) { return x - Vec{}; }
LONGHAUL_INLINE_SMALL Words broadcast_word(const void* p) {
  std::uint32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return word - Words{};
}

// Lane i of the result is lane Lanes::of(i) of a followed by b. V: Vec, Words or Ints.
#ifdef __clang__
template <typename Lanes, int... kLane, typename V>
LONGHAUL_INLINE V picked(V a, V b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, Lanes::of(kLane)...);
}
template <typename Lanes, typename V>
LONGHAUL_INLINE V picked(V a, V b) {
  return picked<Lanes>(a, b, std::make_integer_sequence<int, kWidth>());
}
#else  // GCC 12 makes more instructions of __builtin_shufflevector
template <typename Lanes, typename V>
LONGHAUL_INLINE V picked(V a, V b) {
  Ints lanes;
  for (int lane = 0; lane < kWidth; ++lane) lanes[lane] = Lanes::of(lane);
  return __builtin_shuffle(a, b, lanes);
}
#endif

// The lanes at a distance, so that v and this hold each pair once in each half. V: Vec or Ints.
template <int kDistance>
struct Exchanged {
  static constexpr int of(int lane) { return lane ^ kDistance; }
};
template <int kDistance, typename V>
LONGHAUL_INLINE V exchanged(V v) {
  return picked<Exchanged<kDistance>>(v, v);
}
template <int kDistance = kWidth / 2, typename V>
LONGHAUL_INLINE auto sum_of(V v) {
  v += exchanged<kDistance>(v);
  if constexpr (kDistance > 1) return sum_of<kDistance / 2>(v);
  return v[0];
}
template <int kDistance = kWidth / 2>
LONGHAUL_INLINE float max_of(Vec v) {
  v = max(v, exchanged<kDistance>(v));
  if constexpr (kDistance > 1) return max_of<kDistance / 2>(v);
  return v[0];
}

// Lanes of two vectors in turn, of the lower or the upper half of each four; and such halves behind
// each other.
template <int kFrom>
struct InTurn {
  static constexpr int of(int lane) {
    return lane / 4 * 4 + kFrom + lane % 4 / 2 + lane % 2 * kWidth;
  }
};
template <int kFrom>
struct HalvesOfFour {
  static constexpr int of(int lane) {
    return lane / 4 * 4 + kFrom + lane % 2 + lane % 4 / 2 * kWidth;
  }
};

template <int kDistance, typename Op>
LONGHAUL_INLINE Vec over_fours(Vec v, const Op& op) {
  if constexpr (kDistance < 4) {
    return v;
  } else {
    return over_fours<kDistance / 2>(op(v, exchanged<kDistance>(v)), op);
  }
}

// What op makes of all lanes of each of four vectors, in the first four lanes: with less than half
// of the instructions that they take one by one.
template <typename Op>
LONGHAUL_INLINE Vec of_each(const Vec (&v)[4], const Op& op) {
  const Vec a = op(picked<InTurn<0>>(v[0], v[1]), picked<InTurn<2>>(v[0], v[1]));
  const Vec b = op(picked<InTurn<0>>(v[2], v[3]), picked<InTurn<2>>(v[2], v[3]));
  return over_fours<kWidth / 2>(op(picked<HalvesOfFour<0>>(a, b), picked<HalvesOfFour<2>>(a, b)),
                                op);
}

// sum + a_low b_low + a_high b_high of signed halves.
LONGHAUL_INLINE Ints add_products(Ints sum, Words a, Words b) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<Ints>(_mm512_dpwssd_epi32(
      reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX512BW__)
  return sum + reinterpret_cast<Ints>(
                   _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return sum + reinterpret_cast<Ints>(
                   _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  const Ints low =
      (reinterpret_cast<Ints>(a << 16) >> 16) * (reinterpret_cast<Ints>(b << 16) >> 16);
  return sum + low + (reinterpret_cast<Ints>(a) >> 16) * (reinterpret_cast<Ints>(b) >> 16);
#endif
}

// The two floats of each pair of bf16.
LONGHAUL_INLINE_SMALL Vec low_halves(Words pairs) { return reinterpret_cast<Vec>(pairs << 16); }
LONGHAUL_INLINE_SMALL Vec high_halves(Words pairs) {
  return reinterpret_cast<Vec>(pairs & 0xffff0000U);
}

// float -> bf16 bits in the lower half of each word, to nearest even; NaN stays NaN. The same bits
// as to_bf16 of base/dtype.h.
LONGHAUL_INLINE Words to_bf16_bits(Vec x) {
  const Words bits = reinterpret_cast<Words>(x);
  const Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const Words quiet = (bits >> 16) | 0x40U;
  return (bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded;
}
LONGHAUL_INLINE Vec round_to_bf16(Vec x) { return reinterpret_cast<Vec>(to_bf16_bits(x) << 16); }
LONGHAUL_INLINE std::uint16_t to_bf16_bits(float x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// op(0) to op(kCount - 1).
template <int kCount, typename Op>
LONGHAUL_INLINE void each(const Op& op) {
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) op(v);
}

// x becomes e^(x - n ln 2) for the whole number n next to x / ln 2: r = x - n ln 2 (Cody & Waite),
// and a polynomial in r. Several vectors side by side, for the steps of one wait for each other.
template <int kCount>
LONGHAUL_INLINE void exp_of_rest(Vec (&x)[kCount], const Vec (&n)[kCount]) {
  Vec p[kCount];
  each<kCount>([&](int v) { x[v] = x[v] - n[v] * 0.693145751953125F; });
  each<kCount>([&](int v) { x[v] = x[v] - n[v] * 1.42860682030941723212e-6F; });
  each<kCount>([&](int v) { p[v] = 1.9875691500e-4F * x[v] + 1.3981999507e-3F; });
  each<kCount>([&](int v) { p[v] = p[v] * x[v] + 8.3334519073e-3F; });
  each<kCount>([&](int v) { p[v] = p[v] * x[v] + 4.1665795894e-2F; });
  each<kCount>([&](int v) { p[v] = p[v] * x[v] + 1.6666665459e-1F; });
  each<kCount>([&](int v) { p[v] = p[v] * x[v] + 5.0000001201e-1F; });
  each<kCount>([&](int v) { x[v] = p[v] * (x[v] * x[v]) + x[v] + 1.0F; });
}

// e^x to about 1e-7 relative, as e^r 2^n. exp(-inf) = 0, exp(+inf) = inf, NaN stays NaN.
LONGHAUL_INLINE Vec exp(Vec x) {
  constexpr float kShift = 0x1.8p23F;  // plus it, a float is an integer; minus it, the nearest one
  Vec rest[1] = {max(broadcast(-104.0F), min(broadcast(89.0F), x))};
  const Vec n[1] = {(rest[0] * kLog2E + kShift) - kShift};
  exp_of_rest(rest, n);
  return scale_by_power_of_two(rest[0], n[0]);
}

// x becomes e^x, for x of at most 88; 0 where e^x is no normal float, as it is while FlushDenormals
// lives. Two thirds of the instructions: the shift leaves n + 127 in a float's lowest bits, where
// 2^n has it.
template <int kCount>
LONGHAUL_INLINE void exp_below(Vec (&x)[kCount]) {
  constexpr float kShift = 0x1.8p23F + 127.0F;
  Vec n[kCount];
  Words power[kCount];
  each<kCount>([&](int v) { x[v] = max(broadcast(-88.0F), x[v]); });  // n = -127: times 0
  each<kCount>([&](int v) { n[v] = x[v] * kLog2E + kShift; });
  each<kCount>([&](int v) { power[v] = reinterpret_cast<Words>(n[v]) << 23; });
  each<kCount>([&](int v) { n[v] = n[v] - kShift; });
  exp_of_rest(x, n);
  each<kCount>([&](int v) { x[v] = x[v] * reinterpret_cast<Vec>(power[v]); });
}
LONGHAUL_INLINE Vec exp_below(Vec x) {
  Vec value[1] = {x};
  exp_below(value);
  return value[0];
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
