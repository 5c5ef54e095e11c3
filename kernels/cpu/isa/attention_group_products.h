// The two matrix products of attention of few rows with codes in groups (KIVI), in place. See
// kernels/kv_block.h and kernels/cpu/isa/attention.cc.
//
// What widens a code varies along the sum: keys have a scale for each dim of a group of tokens,
// values one for each token and group of dims. So scales go to the left side, queries times scales
// or probabilities times scales, which is made anew for each group; and minima add one number to
// all of a row's scores, or outputs, of a group. For many rows that costs more than widening the
// right side once (attention_packed.h).
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_groups.h"
#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// c[r][j] = minima[r] + sum_i a[r][i] b[i][j], and with Start::kScale + c[r][j] row_scale[r], for
// the n_columns of one group.
struct GroupProduct {
  const float* a;  // [n_rows, kGroupLeftStride]; an element for each code of the segments' words
  const Segment* segments;
  std::int64_t n_segments;
  std::int64_t b_stride;
  float* c;  // [n_rows, c_stride]
  std::int64_t c_stride;
  const float* row_scale;
  const float* minima;
  ReadAhead* ahead;         // see tile.h
  std::int64_t column = 0;  // of b and c: where to begin
};

constexpr int kGroupTileVectors = 2;
constexpr int kGroupTileRows = kWidth == 16 ? 8 : 4;
// As many sums side by side as registers hold, for each waits for itself.
constexpr int kGroupTileSums = kWidth == 16 ? 16 : 8;
constexpr int group_tile_parts(int sums) {
  return sums * 4 <= kGroupTileSums ? 4 : sums * 2 <= kGroupTileSums ? 2 : 1;
}

// One row of words: code kIndex and those behind it.
template <int kBits, int kIndex = 0, int kParts, int kRows, int kVectors>
LONGHAUL_INLINE void add_codes(Vec (&sums)[kParts][kRows][kVectors], const float* a,
                               const Words (&b)[kVectors]) {
  Vec codes[kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) codes[v] = code_of<kBits, kIndex>(b[v]);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Vec x = broadcast(a[r * kGroupLeftStride + kIndex]);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[kIndex % kParts][r][v] += x * codes[v];
  }
  if constexpr (kIndex + 1 < 32 / kBits) add_codes<kBits, kIndex + 1>(sums, a, b);
}

template <int kBits, Start kStart, int kRows, int kVectors>
void multiply_group_tile(const GroupProduct& product) {
  const GroupProduct p = product;  // a copy: stores to c cannot change it
  constexpr int kParts = group_tile_parts(kRows * kVectors);
  constexpr int kLines = kVectors * kWidth / 16;  // that a step reads
  Vec sums[kParts][kRows][kVectors] = {};
  ReadAhead ahead;
  if (p.ahead != nullptr) ahead = *p.ahead;
  const float* a = p.a;
  for (std::int64_t s = 0; s < p.n_segments; ++s) {
    const float* b = p.segments[s].b + p.column;
    for (std::int64_t i = p.segments[s].n_steps; i > 0; --i) {
      Words words[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) words[v] = load_words(b + v * kWidth);
      if constexpr (kLines > 0) ahead.ask<kLines>();
      add_codes<kBits>(sums, a, words);
      a += 32 / kBits;
      b += p.b_stride;
    }
  }
  if (p.ahead != nullptr) *p.ahead = ahead;
  float* row = p.c + p.column;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r, row += p.c_stride) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      Vec out = sums[0][r][v];
#pragma GCC unroll 4
      for (int part = 1; part < kParts; ++part) out += sums[part][r][v];
      out += broadcast(p.minima[r]);
      if constexpr (kStart == Start::kScale) out += load(row + v * kWidth) * p.row_scale[r];
      store(row + v * kWidth, out);
    }
  }
}

template <int kBits, Start kStart, int kVectors, int kRows = kGroupTileRows>
LONGHAUL_INLINE void multiply_group_rows(std::int64_t n_rows, const GroupProduct& p) {
  if (n_rows == kRows) {
    multiply_group_tile<kBits, kStart, kRows, kVectors>(p);
  } else if constexpr (kRows > 1) {
    multiply_group_rows<kBits, kStart, kVectors, kRows - 1>(n_rows, p);
  }
}

template <int kBits, Start kStart, int kVectors>
void multiply_group_columns(std::int64_t n_rows, GroupProduct p) {
  for (std::int64_t left = n_rows; left > 0; left -= kGroupTileRows) {
    multiply_group_rows<kBits, kStart, kVectors>(smaller(left, kGroupTileRows), p);
    p.a += kGroupTileRows * kGroupLeftStride;
    p.c += kGroupTileRows * p.c_stride;
    p.minima += kGroupTileRows;
    if constexpr (kStart == Start::kScale) p.row_scale += kGroupTileRows;
    p.ahead = nullptr;
  }
}

// n_columns is a multiple of kWidth.
template <int kBits, Start kStart>
void multiply_group(std::int64_t n_rows, std::int64_t n_columns, GroupProduct p) {
  constexpr std::int64_t kMost = kGroupTileVectors * kWidth;
  for (; p.column + kMost <= n_columns; p.column += kMost)
    multiply_group_columns<kBits, kStart, kGroupTileVectors>(n_rows, p);
  if (p.column < n_columns) multiply_group_columns<kBits, kStart, 1>(n_rows, p);
}

// x times scales; returns what x times minima add up to. n is a multiple of kWidth.
LONGHAUL_INLINE float scale_left(const float* x, const float* scales, const float* minima,
                                 std::int64_t n, float* out) {
  Vec sum{};
  for (std::int64_t i = 0; i < n; i += kWidth) {
    const Vec element = load(x + i);
    store(out + i, element * load(scales + i));
    sum += element * load(minima + i);
  }
  return sum_of(sum);
}

template <int kBits>
void compute_group_scores(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  alignas(64) float scales[kMostCodes];
  alignas(64) float minima[kMostCodes];
  float* scores = tile.scores;
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    const Run& run = panel.runs[i];
    std::int64_t n_keys = 0;
    for (std::int64_t key = 0; key < run.n_keys; key += n_keys, scores += n_keys) {
      const std::int64_t slot = run.first_slot + key;
      n_keys = smaller(run.n_keys - key, kKvGroup - slot % kKvGroup);
      const std::int64_t group = slot / kKvGroup * task.head_dim;
      floats_of_halves(run.k_scales + group, task.head_dim, scales);
      floats_of_halves(run.k_minima + group, task.head_dim, minima);
      for (std::int64_t r = 0; r < tile.n_rows; ++r) {
        tile.panel_minima[r] = scale_left(tile.q + r * task.head_dim, scales, minima, task.head_dim,
                                          tile.packed + r * kGroupLeftStride);
      }
      const Segment segment = {run.k + key, task.head_dim * kBits / 32};
      const GroupProduct product = {.a = tile.packed,
                                    .segments = &segment,
                                    .n_segments = 1,
                                    .b_stride = task.block_size,
                                    .c = scores,
                                    .c_stride = kScoreStride,
                                    .row_scale = nullptr,
                                    .minima = tile.panel_minima,
                                    .ahead = panel.ahead};
      multiply_group<kBits, Start::kZero>(tile.n_rows, n_keys, product);
    }
  }
}

template <int kBits>
void add_group_values(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  alignas(64) float scales[kPanelKeys];
  alignas(64) float minima[kPanelKeys];
  Segment segments[kMostRuns];
  for (std::int64_t dim = 0; dim < task.head_dim; dim += kKvGroup) {
    const std::int64_t group = dim / kKvGroup * task.block_size;
    floats_of_panel(panel, &Run::v_scales, group, scales);
    floats_of_panel(panel, &Run::v_minima, group, minima);
    for (std::int64_t r = 0; r < tile.n_rows; ++r) {
      tile.panel_minima[r] = scale_left(tile.scores + r * kScoreStride, scales, minima,
                                        panel.n_keys, tile.packed + r * kGroupLeftStride);
    }
    for (std::int64_t i = 0; i < panel.n_runs; ++i)
      segments[i] = {panel.runs[i].v + dim, panel.runs[i].n_keys * kBits / 32};
    const GroupProduct product = {.a = tile.packed,
                                  .segments = segments,
                                  .n_segments = panel.n_runs,
                                  .b_stride = task.head_dim,
                                  .c = tile.o + dim,
                                  .c_stride = tile.o_stride,
                                  .row_scale = tile.factor,
                                  .minima = tile.panel_minima,
                                  .ahead = panel.ahead};
    multiply_group<kBits, Start::kScale>(tile.n_rows, kKvGroup, product);
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
