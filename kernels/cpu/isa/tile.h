// The register-blocked matrix product under attention and linear:
//   c[r][j] = start + sum_i a[r][i] b[i][j]
// for a left side of few rows (queries, probabilities or activations) and a right side laid out
// as vectors of columns (keys of a K block, dims of a V block, packed weights). Both sides come in
// 32-bit words: the right side's words are floats, or pairs of bf16 along i.
//
//          columns: kTileVectors vectors          one step i: load the vectors of b[i],
//   rows   +-----+-----+-----+-----+              broadcast a[r][i] row by row, multiply-add.
//   kTile- | acc | acc | acc | acc |              Everything but a and b stays in registers.
//   Rows   | ... | ... | ... | ... |
//
// The right side may lie in several segments, such as the blocks of a cache, that follow each other
// along the sum.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/read_ahead.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/tile_formats.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

enum class Start { kZero, kAdd, kScale };  // c starts as 0, as it is, or as c[r] * row_scale[r]

constexpr std::int64_t kPrefetchGroups = 4;  // of rows, from which on there is time to prefetch
constexpr int kAskingRows = kWidth == 8 ? 6 : 4;  // at most, of a tile that asks as it goes
// Wide tiles, for few rows: with 8 lanes, enough sums not to wait for one; with 16, a row of 128
// words, which memory likes to give whole.
constexpr int kWideRows = 2;
constexpr int kWideVectors = kWidth == 16 ? 8 : 4;
// Tall tiles, for more rows than kAskingRows that ask.
constexpr int kTallRows = 8;
constexpr int kTallVectors = 2;

struct Segment {
  const float* b;  // [n_steps, b_stride] words
  std::int64_t n_steps;
  // Many rows: of the same shape, what will be read next; null: unknown.
  const float* next = nullptr;
  // Of `next`, what a step with so many words of the columns from `column` on asks for: the lines
  // in the order in which they lie, not those of its own columns. Lines of a block that are fetched
  // row by row, with gaps, come at two thirds of the speed.
  const float* words_ahead(std::int64_t column, std::int64_t step, std::int64_t n_words) const {
    return next + column * n_steps + step * n_words;
  }
};

struct Product {
  const float* a;  // [n_rows, a_stride]; kLeftWords words a step, of all segments' steps
  std::int64_t a_stride;
  const Segment* segments;
  std::int64_t n_segments;
  std::int64_t b_stride;
  float* c;  // [n_rows, c_stride]
  std::int64_t c_stride;
  const float* row_scale;      // [n_rows], for kScale
  const float* left_units;     // [n_rows], for codes: what 1 on the left is worth
  ReadAhead* ahead = nullptr;  // few rows: what to ask memory for meanwhile; null: nothing
};

template <bool kPartial>
LONGHAUL_INLINE Vec load_columns(const float* p, std::int64_t n_last) {
  if constexpr (kPartial) return load_first(p, n_last);
  return load(p);
}

// With 16 registers the words of a step do not fit beside sums and what is widened of them.
constexpr bool kReadsWordsAgain = kWidth < 16;

// The parts of a step from kPart on. `right`: the words at b.
template <typename Format, int kPart, bool kPartial, typename Sum, int kRows, int kVectors>
LONGHAUL_INLINE void multiply_parts(Sum (&sums)[kRows][kVectors], const float* a,
                                    std::int64_t a_stride, Vec (&right)[kVectors], const float* b,
                                    std::int64_t n_last) {
  if constexpr (kPart > 0 && kReadsWordsAgain) {
    asm("" : "+r"(b));  // else the compiler keeps the words, and sums go to memory and back
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = load_columns<kPartial>(b + v * kWidth, n_last);
  }
  Format::template part<kPart>(sums, a, a_stride, right);
  if constexpr (kPart + 1 < Format::kParts)
    multiply_parts<Format, kPart + 1, kPartial>(sums, a, a_stride, right, b, n_last);
}

// The tile at a row and a column of c; kPartial: a single vector of which only the first n_last
// columns exist. Asks memory for as much as a step reads every so many steps, as the tiles of so
// many groups of rows read the same.
template <typename Format, Start kStart, int kRows, int kVectors, bool kPartial>
void multiply_tile(const Product& p, std::int64_t first_row, std::int64_t column,
                   std::int64_t ask_every, std::int64_t n_last) {
  typename Format::Sum sums[kRows][kVectors] = {};
  const std::int64_t a_stride = Format::kLeftStride > 0 ? Format::kLeftStride : p.a_stride;
  const float* a = p.a + first_row * a_stride;
  constexpr int kLines = kVectors * kWidth / 16;  // that a step reads
  constexpr bool kIsTall = Format::kTall && kVectors <= kTallVectors;
  constexpr bool kAsks = kRows <= (kIsTall ? kTallRows : kAskingRows) && kLines > 0;
  [[maybe_unused]] ReadAhead ahead;
  [[maybe_unused]] std::int64_t until_asking = ask_every;
  if constexpr (kAsks) {
    if (p.ahead != nullptr) ahead = *p.ahead;
  }
  for (std::int64_t s = 0; s < p.n_segments; ++s) {
    const float* b = p.segments[s].b + column;
    for (std::int64_t i = p.segments[s].n_steps; i > 0; --i) {
      Vec right[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) right[v] = load_columns<kPartial>(b + v * kWidth, n_last);
      if constexpr (kAsks) {
        if (--until_asking == 0) {
          until_asking = ask_every;
          ahead.ask<kLines>();
        }
      }
      multiply_parts<Format, 0, kPartial>(sums, a, a_stride, right, b, n_last);
      a += Format::kLeftWords;
      b += p.b_stride;
    }
  }
  if constexpr (kAsks) {
    if (p.ahead != nullptr) *p.ahead = ahead;
  }
  float* row = p.c + first_row * p.c_stride + column;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r, row += p.c_stride) {
    const float unit = Format::kIntegers ? p.left_units[first_row + r] : 1.0F;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* to = row + v * kWidth;
      Vec out = Format::value(sums[r][v], unit);
      if constexpr (kStart == Start::kAdd) out += load_columns<kPartial>(to, n_last);
      if constexpr (kStart == Start::kScale)
        out += load_columns<kPartial>(to, n_last) * p.row_scale[first_row + r];
      if constexpr (kPartial) {
        store_first(to, out, n_last);
      } else {
        store(to, out);
      }
    }
  }
}

template <typename Format, Start kStart, int kRows, int kVectors, bool kPartial>
LONGHAUL_INLINE void multiply_rows(std::int64_t n_rows, const Product& p, std::int64_t first_row,
                                   std::int64_t column, std::int64_t ask_every,
                                   std::int64_t n_last) {
  if (n_rows == kRows) {
    multiply_tile<Format, kStart, kRows, kVectors, kPartial>(p, first_row, column, ask_every,
                                                             n_last);
  } else if constexpr (kRows > 1) {
    multiply_rows<Format, kStart, kRows - 1, kVectors, kPartial>(n_rows, p, first_row, column,
                                                                 ask_every, n_last);
  }
}

// One part of n_parts of what the segments name as next, into the second cache: while a group of
// columns meets many rows there is time for it, and rows that lie apart are not foreseen by the
// hardware.
template <int kVectors>
LONGHAUL_INLINE void prefetch_part(const Product& p, std::int64_t column, std::int64_t part,
                                   std::int64_t n_parts) {
  for (std::int64_t s = 0; s < p.n_segments; ++s) {
    const Segment& segment = p.segments[s];
    if (segment.next == nullptr) continue;
    const std::int64_t end = (part + 1) * segment.n_steps / n_parts;
    for (std::int64_t i = part * segment.n_steps / n_parts; i < end; ++i) {
      const float* words = segment.words_ahead(column, i, kVectors * kWidth);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors * kWidth; v += 16) {
        __builtin_prefetch(words + v, /*rw=*/0, /*locality=*/2);
      }
    }
  }
}

// All rows, in groups of nearly equal size, against one group of columns.
template <typename Format, Start kStart, int kRows, int kVectors, bool kPartial>
void multiply_columns(std::int64_t n_rows, const Product& p, std::int64_t column,
                      std::int64_t n_last) {
  const std::int64_t n_groups = quotient_up(n_rows, kRows);
  for (std::int64_t group = 0; group < n_groups; ++group) {
    const std::int64_t begin = group * n_rows / n_groups;
    const std::int64_t end = (group + 1) * n_rows / n_groups;
    if (n_groups >= kPrefetchGroups) prefetch_part<kVectors>(p, column, group, n_groups);
    multiply_rows<Format, kStart, kRows, kVectors, kPartial>(end - begin, p, begin, column,
                                                             n_groups, n_last);
  }
}

// c[n_rows][n_columns], in tiles of at most kRows rows where they are not wide.
template <typename Format, Start kStart, int kRows, int kVectors = kTileVectors>
void multiply_by(std::int64_t n_rows, std::int64_t n_columns, const Product& p) {
  constexpr int kWide = kWideVectors * kWidth;
  constexpr int kMost = kVectors * kWidth;
  std::int64_t column = 0;
  if constexpr (Format::kRowsInWide > 0) {
    for (; n_rows <= Format::kRowsInWide && column + kWide <= n_columns; column += kWide)
      multiply_columns<Format, kStart, kWideRows, kWideVectors, false>(n_rows, p, column, 0);
  }
  for (; column + kMost <= n_columns; column += kMost)
    multiply_columns<Format, kStart, kRows, kVectors, false>(n_rows, p, column, 0);
  if constexpr (kVectors >= 4) {
    if (column + 2 * kWidth <= n_columns) {
      multiply_columns<Format, kStart, kRows, 2, false>(n_rows, p, column, 0);
      column += 2 * kWidth;
    }
  }
  if (column + kWidth <= n_columns) {
    multiply_columns<Format, kStart, kRows, 1, false>(n_rows, p, column, 0);
    column += kWidth;
  }
  if (column < n_columns)
    multiply_columns<Format, kStart, kRows, 1, true>(n_rows, p, column, n_columns - column);
}

// c[n_rows][n_columns]; reads of b stay within its n_columns words.
template <typename Format, Start kStart>
void multiply(std::int64_t n_rows, std::int64_t n_columns, const Product& p) {
  if constexpr (Format::kTall) {
    if (p.ahead != nullptr && n_rows > kAskingRows)
      return multiply_by<Format, kStart, kTallRows, kTallVectors>(n_rows, n_columns, p);
  }
  if constexpr (kAskingRows < kTileRows) {
    if (p.ahead != nullptr) return multiply_by<Format, kStart, kAskingRows>(n_rows, n_columns, p);
  }
  multiply_by<Format, kStart, Format::kMostRows>(n_rows, n_columns, p);
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
