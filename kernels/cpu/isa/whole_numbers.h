// Counts of rows, keys and bytes: what kernels need to cut them into tiles.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

LONGHAUL_INLINE_SMALL constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
LONGHAUL_INLINE_SMALL constexpr std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}
LONGHAUL_INLINE_SMALL constexpr std::int64_t quotient_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
LONGHAUL_INLINE_SMALL constexpr std::int64_t round_up(std::int64_t n, std::int64_t unit) {
  return quotient_up(n, unit) * unit;
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
