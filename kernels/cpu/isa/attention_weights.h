// Online softmax of a panel's scores where values are codes: from scores to the integers that
// multiply the codes. See kernels/cpu/isa/attention.cc.
//
// A value is code * scale + minimum, with a scale and a minimum of its token's. So a code's weight
// is its probability times its scale, as an integer of 16 bits (pack_left), and the minima add one
// number to all of a row's outputs.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_softmax.h"
#include "kernels/cpu/isa/attention_tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// Of a row and a panel.
struct Weights {
  Vec sum{};      // of probabilities
  Vec minima{};   // of probabilities times minima
  Vec largest{};  // weight
};

// kCount vectors of scores -> weights, in place.
template <int kCount>
LONGHAUL_INLINE void weigh(float* scores, float scale, float m, const float* scales,
                           const float* minima, Weights& weights) {
  Vec p[kCount];
#if defined(__AVX512F__)
  each<kCount>([&](int v) {
    p[v] = exp2_below<5>(load(scores + v * kWidth) * broadcast(scale * kLog2E) -
                         broadcast(m * kLog2E));
  });
#else
  each<kCount>([&](int v) { p[v] = load(scores + v * kWidth) * broadcast(scale) - broadcast(m); });
  exp_below(p);
#endif
  each<kCount>([&](int v) { weights.sum += p[v]; });
  each<kCount>([&](int v) { weights.minima += p[v] * load(minima + v * kWidth); });
  each<kCount>([&](int v) { p[v] = p[v] * load(scales + v * kWidth); });
  each<kCount>([&](int v) { weights.largest = max(weights.largest, p[v]); });
  each<kCount>([&](int v) { store(scores + v * kWidth, p[v]); });
}

LONGHAUL_INLINE Weights weigh_row(float* row, std::int64_t n_keys, float scale, float m,
                                  const float* scales, const float* minima) {
  Weights weights;
  std::int64_t i = 0;
  for (; i + kBeside * kWidth <= n_keys; i += kBeside * kWidth)
    weigh<kBeside>(row + i, scale, m, scales + i, minima + i, weights);
  for (; i < n_keys; i += kWidth) weigh<1>(row + i, scale, m, scales + i, minima + i, weights);
  return weights;
}

// kLinesOfSoftmax, evenly over the rows.
LONGHAUL_INLINE void ask_beside_row(const Tile& tile, const Panel& panel) {
  if (panel.ahead == nullptr) return;
  for (std::int64_t i = 0; i < kLinesOfSoftmax; i += 4 * tile.n_rows) panel.ahead->ask<4>();
}

void softmax_into_weights(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  alignas(64) float scales[kPanelKeys];
  alignas(64) float minima[kPanelKeys];
  floats_of_panel(panel, &Run::v_scales, 0, scales);
  floats_of_panel(panel, &Run::v_minima, 0, minima);
  for (std::int64_t begin = 0; begin < tile.n_rows; begin += kSoftmaxRows) {
    const std::int64_t end = smaller(tile.n_rows, begin + kSoftmaxRows);
    raise_references(task, tile, panel.n_keys, begin, end);
    for (std::int64_t r = begin; r < end; ++r) {
      ask_beside_row(tile, panel);
      float* row = tile.scores + r * kScoreStride;
      const Weights weights =
          weigh_row(row, panel.n_keys, task.sm_scale, tile.reference[r], scales, minima);
      const LeftUnit unit = left_unit(max_of(weights.largest));
      pack_left(row, panel.n_keys, unit.inverse, row);
      tile.left_units[r] = unit.unit;
      tile.sums[r] = sum_of(weights.sum);
      tile.panel_minima[r] = sum_of(weights.minima);
    }
  }
  add_sums(tile);
  for (std::int64_t r = 0; r < tile.n_rows; r += kWidth) {
    store(tile.minima + r,
          load(tile.minima + r) * load(tile.factor + r) + load(tile.panel_minima + r));
  }
}

// What the minima of all panels' values add to the outputs.
void add_minima(const AttentionTask& task, const Tile& tile) {
  for (std::int64_t r = 0; r < tile.n_rows; ++r) {
    float* o = tile.o + r * tile.o_stride;
    for (std::int64_t d = 0; d < task.head_dim; ++d) o[d] += tile.minima[r];
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
