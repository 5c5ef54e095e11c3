// The register-blocked product of many rows with a packed right side:
//   c[r][j] = start + sum_i a[r][i] b[i][j]   for the kPackedColumns columns of a group
// b is a group of columns, [n_steps, kPackedColumns] floats: 128 steps fill half of the first cache
// and stay there while all rows pass. (In place, a block's rows are so many bytes apart that they
// would fall on few of the cache's sets and push each other out.)
//
// Compared with the tiles of tile.h, twice the rows and half the columns: each of b's vectors is
// used kPackedRows times, and two steps at a time keep the instruction decoder ahead of the
// multiply-adds.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr int kPackedVectors = 2;
constexpr std::int64_t kPackedColumns = kPackedVectors * kWidth;

struct PackedProduct {
  const float* a;  // [n_rows, a_stride]
  std::int64_t a_stride;
  const float* b;        // [n_steps, kPackedColumns]
  std::int64_t n_steps;  // even
  float* c;              // [n_rows, c_stride]
  std::int64_t c_stride;
  const float* row_scale;  // [n_rows], for Start::kScale
};

template <Start kStart, int kRows>  // kZero or kScale
void multiply_packed_tile(const PackedProduct& product) {
  const PackedProduct p = product;  // a copy: stores to c cannot change it
  Vec sums[kRows][kPackedVectors] = {};
  // A pointer for every three rows: the addresses of the others are part of the instructions.
  constexpr int kPointers = (kRows + 2) / 3;
  const float* a[kPointers];
#pragma GCC unroll 4
  for (int i = 0; i < kPointers; ++i) a[i] = p.a + 3 * i * p.a_stride;
  const float* b = p.b;
  for (const float* end = b + p.n_steps * kPackedColumns; b < end; b += 2 * kPackedColumns) {
#pragma GCC unroll 2
    for (int step = 0; step < 2; ++step) {
      Vec right[kPackedVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kPackedVectors; ++v) {
        right[v] = load(b + step * kPackedColumns + v * kWidth);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec x = broadcast(a[r / 3][r % 3 * p.a_stride + step]);
#pragma GCC unroll 2
        for (int v = 0; v < kPackedVectors; ++v) add_product(sums[r][v], x, right[v]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kPointers; ++i) {
      a[i] += 2;
      __asm__("" : "+r"(a[i]));  // else the compiler derives one from another in every round
    }
  }
  float* row = p.c;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r, row += p.c_stride) {
#pragma GCC unroll 2
    for (int v = 0; v < kPackedVectors; ++v) {
      Vec out = sums[r][v];
      if constexpr (kStart == Start::kScale) out += load(row + v * kWidth) * p.row_scale[r];
      store(row + v * kWidth, out);
    }
  }
}

template <Start kStart, int kRows>
LONGHAUL_INLINE void multiply_packed_rows(std::int64_t n_rows, const PackedProduct& p) {
  if (n_rows == kRows) {
    multiply_packed_tile<kStart, kRows>(p);
  } else if constexpr (kRows > 1) {
    multiply_packed_rows<kStart, kRows - 1>(n_rows, p);
  }
}

// All rows, in parts of nearly equal size, with one group of columns.
template <Start kStart>
void multiply_packed(std::int64_t n_rows, const PackedProduct& p) {
  const std::int64_t n_parts = quotient_up(n_rows, kPackedRows);
  PackedProduct part = p;
  for (std::int64_t i = 0; i < n_parts; ++i) {
    const std::int64_t begin = i * n_rows / n_parts;
    const std::int64_t end = (i + 1) * n_rows / n_parts;
    part.a = p.a + begin * p.a_stride;
    part.c = p.c + begin * p.c_stride;
    if constexpr (kStart == Start::kScale) part.row_scale = p.row_scale + begin;
    multiply_packed_rows<kStart, kPackedRows>(end - begin, part);
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
