// Rows as vectors, and a partial one at their end.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// How a body reaches the elements of a vector.
struct Whole {
  LONGHAUL_INLINE Vec load(const float* p) const { return LONGHAUL_ISA_NAMESPACE::load(p); }
  LONGHAUL_INLINE void store(float* p, Vec v) const { LONGHAUL_ISA_NAMESPACE::store(p, v); }
};
struct Partial {
  std::int64_t n;
  LONGHAUL_INLINE Vec load(const float* p) const { return load_first(p, n); }
  LONGHAUL_INLINE void store(float* p, Vec v) const { store_first(p, v, n); }
};

// Calls body(i, access) for the whole vectors of n elements, then for the rest with a partial one.
template <typename Body>
LONGHAUL_INLINE void for_vectors(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) body(i, Whole{});
  if (i < n) body(i, Partial{n - i});
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
