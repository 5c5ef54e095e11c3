// The two matrix products of attention, in place: scores of a panel's keys, and what its values add
// to the outputs. See kernels/cpu/isa/attention.cc.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

using Int8Product = CodeProduct<4, kScoreStride>;
using Int4Product = CodeProduct<8, kScoreStride>;

// Products with codes -> products with keys.
template <bool kHasMinima>
void scale_scores(const Tile& tile, const Run& run, float* scores) {
  for (std::int64_t i = 0; i < run.n_keys; i += kWidth) {
    const Vec scale = load_halves(run.k_scales + i);
    const Vec minimum = kHasMinima ? load_halves(run.k_minima + i) : Vec{};
    for (std::int64_t r = 0; r < tile.n_rows; ++r) {
      float* s = scores + r * kScoreStride + i;
      Vec scaled = load(s) * scale;
      if constexpr (kHasMinima) scaled += minimum * broadcast(tile.q_sums[r]);
      store(s, scaled);
    }
  }
}

// Where run `i` of the next panel will read: at byte `at` of its block. For many rows.
const float* next_part(const AttentionTask& task, const Panel& panel, std::int64_t i,
                       std::size_t at) {
  const std::int64_t b = panel.next_block + i;
  if (panel.ahead != nullptr || b >= task.n_blocks + task.n_blocks_ahead) return nullptr;
  return reinterpret_cast<const float*>(task.blocks[b].data + at);
}

template <typename Format>
void compute_scores(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  std::int64_t column = 0;
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    const Run& run = panel.runs[i];
    const Segment segment = {run.k, task.head_dim / Format::kLanes, next_part(task, panel, i, 0)};
    const Product product = {.a = tile.q,
                             .a_stride = q_stride(task),
                             .segments = &segment,
                             .n_segments = 1,
                             .b_stride = task.block_size,
                             .c = tile.scores + column,
                             .c_stride = kScoreStride,
                             .row_scale = nullptr,
                             .left_units = Format::kIntegers ? tile.q_units : nullptr,
                             .ahead = panel.ahead};
    multiply<Format, Start::kZero>(tile.n_rows, run.n_keys, product);
    if constexpr (Format::kLanes > 2)
      scale_scores<Format::kIntegers>(tile, run, tile.scores + column);
    column += run.n_keys;
  }
}

template <typename Format>
void add_values(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  Segment segments[kMostRuns];
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    segments[i] = {panel.runs[i].v, panel.runs[i].n_keys / Format::kLanes,
                   next_part(task, panel, i, task.v_at)};
  }
  const Product product = {.a = tile.scores,
                           .a_stride = kScoreStride,
                           .segments = segments,
                           .n_segments = panel.n_runs,
                           .b_stride = task.head_dim,
                           .c = tile.o,
                           .c_stride = tile.o_stride,
                           .row_scale = tile.factor,
                           .left_units = Format::kIntegers ? tile.left_units : nullptr,
                           .ahead = panel.ahead};
  multiply<Format, Start::kScale>(tile.n_rows, task.head_dim, product);
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
