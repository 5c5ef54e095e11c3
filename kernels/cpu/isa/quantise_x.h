// Activations become integers of [-127, 127] times a scale, for products with weights of int8 and
// int4. Every operation gives the same bits with every instruction set. Only files under
// kernels/cpu include this.
#pragma once
#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

template <int kDistance = kWidth / 2>
LONGHAUL_INLINE std::int32_t max_of(Ints v) {
  const Ints other = exchanged<kDistance>(v);
  v = other > v ? other : v;
  if constexpr (kDistance > 1) return max_of<kDistance / 2>(v);
  return v[0];
}

// The largest magnitude of n floats, as bits: those of infinities and NaNs are larger than all.
std::uint32_t largest_magnitude(const float* x, std::int64_t n) {
  Ints most{};
  for (std::int64_t i = 0; i < n; i += kWidth) {
    const Vec v = load_up_to(x, n, i);
    const Ints bits = reinterpret_cast<Ints>(v) & 0x7fffffff;
    most = bits > most ? bits : most;
  }
  return static_cast<std::uint32_t>(max_of(most));
}

// Of a group of neighbouring inputs: integer = round(x * inverse), x = scale * integer. With an
// infinity or NaN the scale is NaN; then, and where all is about zero, so is `inverse`.
struct GroupScale {
  float scale;
  float inverse;
};

LONGHAUL_INLINE GroupScale scale_of_group(const float* x, std::int64_t n) {
  constexpr std::uint32_t kInfinityBits = 0x7f800000U;
  const std::uint32_t bits = largest_magnitude(x, n);
  if (bits >= kInfinityBits) return {__builtin_nanf(""), 0};
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  // Far below what float32 activations can mean, and 127 / largest would overflow.
  if (largest < 1e-35F) return {0, 0};
  return {largest / 127.0F, 127.0F / largest};
}

// Calls store(i, integers) for the n values of a group or of a part of it, kWidth at a time; behind
// the last one they are zero. Returns their sum.
template <typename Store>
LONGHAUL_INLINE std::int32_t quantise_values(const float* x, std::int64_t n, const GroupScale& s,
                                             const Store& store) {
  const Vec inverse = broadcast(s.inverse);
  Ints sums{};
  for (std::int64_t i = 0; i < n; i += kWidth) {
    Ints q{};
    if (s.inverse != 0) {
      const Vec v = load_up_to(x, n, i);
      q = __builtin_convertvector(round(v * inverse), Ints);
    }
    sums += q;
    store(i, q);
  }
  return sum_of(sums);
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
