// Online softmax of a panel's scores where values are codes: from scores to the integers that
// multiply the codes. See kernels/cpu/isa/attention.cc.
//
// A value is code * scale + minimum, with a scale and a minimum of its token's. So a code's weight
// is its probability times its scale, as an integer of 16 bits in a unit of the row's and the
// panel's; and the minima add one number to all of a row's outputs. The unit is chosen before there
// is a weight, from a bound of the largest one (at most 1 % above it): so one pass over the scores
// is enough, and nothing waits for the end of a row.
#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/isa/attention_softmax.h"
#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// Of a panel's keys.
struct ValueScales {
  alignas(64) float scale[kPanelKeys];
  alignas(64) float minimum[kPanelKeys];
  alignas(64) float log2_bound[kPanelKeys];  // of scale
};

// Above log2(x), by 1e-4 to 0.0152. 2^e (1 + f) has 127 + e and f in its bits, and
// log2(1 + f) - f - f (1 - f) / 3 lies between -0.0054 and 0.00972.
LONGHAUL_INLINE Vec log2_bound(Vec x) {
  const Words bits = reinterpret_cast<Words>(x);
  const Vec exponent = __builtin_convertvector(reinterpret_cast<Ints>(bits >> 23), Vec);
  const Vec f = reinterpret_cast<Vec>((bits & 0x7fffffU) | 0x3f800000U) - 1.0F;
  return exponent - (127.0F - 0.00982F) + (f + f * (1.0F - f) * (1.0F / 3.0F));
}

void load_value_scales(const Panel& panel, ValueScales& out) {
  floats_of_panel(panel, &Run::v_scales, 0, out.scale);
  floats_of_panel(panel, &Run::v_minima, 0, out.minimum);
  for (std::int64_t i = 0; i < panel.n_keys; i += kWidth)
    store(out.log2_bound + i, log2_bound(load(out.scale + i)));
}

constexpr int kRowsBeside = 4;  // as of_each takes

// What op makes of all lanes of each of kRows vectors -> kRows numbers.
template <int kRows, typename Op>
LONGHAUL_INLINE void store_each(const Vec (&of_rows)[kRows], const Op& op, float* out) {
  Vec four[kRowsBeside];
  each<kRowsBeside>([&](int r) { four[r] = of_rows[r < kRows ? r : 0]; });
  store_first(out, of_each(four, op), kRows);
}

// Of kRows rows from `row` on: their largest scores, and log2 of a bound of their largest weights
// as if they were held against 0.
template <int kRows>
LONGHAUL_INLINE void bound_weights(const AttentionTask& task, const Tile& tile,
                                   const ValueScales& values, std::int64_t n_keys, std::int64_t row,
                                   float* largest_scores, float* log2_bounds) {
  Vec largest[kRows];
  Vec bound[kRows];
  each<kRows>([&](int r) { largest[r] = bound[r] = Vec{} - kInfinity; });
  const float* scores = tile.scores + row * kScoreStride;
  const Vec scale = broadcast(task.sm_scale * kLog2E);
  for (std::int64_t i = 0; i < n_keys; i += kWidth) {
    const Vec log2_scale = load(values.log2_bound + i);
    each<kRows>([&](int r) {
      const Vec score = load(scores + r * kScoreStride + i);
      largest[r] = max(largest[r], score);
      bound[r] = max(bound[r], score * scale + log2_scale);
    });
  }
  const auto larger_lanes = [](Vec a, Vec b) { return max(a, b); };
  store_each(largest, larger_lanes, largest_scores);
  store_each(bound, larger_lanes, log2_bounds);
}

// What the scores of kWidth rows from `row` on are held against, and the units of their weights.
LONGHAUL_INLINE void choose_units(const AttentionTask& task, const Tile& tile, std::int64_t row,
                                  const float* largest_scores, const float* log2_bounds,
                                  float* inverse_units) {
  const Raised<Vec> now = raised(load(tile.m + row), load(largest_scores) * task.sm_scale);
  store(tile.m + row, now.m);
  store(tile.reference + row, now.reference);
  store(tile.factor + row, now.factor);
  constexpr float kLn2 = 0.693147180559945309F;
  // Weights that are nothing beside those before may be so in any unit that floats can hold.
  const Vec bound = max(load(log2_bounds) * kLn2 - now.reference, broadcast(-60.0F));
  store(tile.left_units + row, exp_below(bound) * (1.0F / kMostLeft));
  store(inverse_units, exp_below(-bound) * kMostLeft);
}

// Of a row and a panel.
struct WeightSums {
  Vec probabilities{};
  Vec minima{};  // probabilities times minima
};

// kCount vectors of scores -> integers.
template <int kCount>
LONGHAUL_INLINE void weigh(const float* scores, float scale, float reference, float inverse_unit,
                           const ValueScales& values, std::int64_t key, float* out,
                           WeightSums& sums) {
  Vec p[kCount];
#if defined(__AVX512F__)
  each<kCount>([&](int v) {
    p[v] = exp2_below<5>(load(scores + v * kWidth) * broadcast(scale * kLog2E) -
                         broadcast(reference * kLog2E));
  });
#else
  each<kCount>(
      [&](int v) { p[v] = load(scores + v * kWidth) * broadcast(scale) - broadcast(reference); });
  exp_below(p);
#endif
  each<kCount>([&](int v) { sums.probabilities += p[v]; });
  each<kCount>([&](int v) { sums.minima += p[v] * load(values.minimum + key + v * kWidth); });
  each<kCount>([&](int v) {
    const Vec scale_in_units = load(values.scale + key + v * kWidth) * broadcast(inverse_unit);
    pack_left(p[v] * scale_in_units, out + v * kWidth / 2);
  });
}

LONGHAUL_INLINE WeightSums weigh_row(float* row, std::int64_t n_keys, float scale, float reference,
                                     float inverse_unit, const ValueScales& values) {
  WeightSums sums;
  std::int64_t i = 0;
  for (; i + kBeside * kWidth <= n_keys; i += kBeside * kWidth)
    weigh<kBeside>(row + i, scale, reference, inverse_unit, values, i, row + i / 2, sums);
  for (; i < n_keys; i += kWidth)
    weigh<1>(row + i, scale, reference, inverse_unit, values, i, row + i / 2, sums);
  return sums;
}

// kLinesOfSoftmax, evenly over the rows.
LONGHAUL_INLINE void ask_beside_row(const Tile& tile, const Panel& panel) {
  if (panel.ahead == nullptr) return;
  for (std::int64_t i = 0; i < kLinesOfSoftmax; i += 4 * tile.n_rows) panel.ahead->ask<4>();
}

// The scores of kRows rows from `row` on -> integers; what their probabilities add up to.
template <int kRows>
LONGHAUL_INLINE void weigh_rows(const AttentionTask& task, const Tile& tile, const Panel& panel,
                                const ValueScales& values, std::int64_t row,
                                const float* inverse_units) {
  Vec probabilities[kRows];
  Vec minima[kRows];
  for (int r = 0; r < kRows; ++r) {
    ask_beside_row(tile, panel);
    const WeightSums sums =
        weigh_row(tile.scores + (row + r) * kScoreStride, panel.n_keys, task.sm_scale,
                  tile.reference[row + r], inverse_units[r], values);
    probabilities[r] = sums.probabilities;
    minima[r] = sums.minima;
  }
  const auto added = [](Vec a, Vec b) { return a + b; };
  store_each(probabilities, added, tile.sums + row);
  store_each(minima, added, tile.panel_minima + row);
}

// op(row, a constant number of rows from there on) for rows [begin, end).
template <int kMost = kRowsBeside, typename Op>
LONGHAUL_INLINE void for_some_rows(std::int64_t begin, std::int64_t end, const Op& op) {
  for (; begin + kMost <= end; begin += kMost) op(begin, std::integral_constant<int, kMost>());
  if constexpr (kMost > 1) for_some_rows<kMost - 1>(begin, end, op);
}

void softmax_into_weights(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  ValueScales values;
  load_value_scales(panel, values);
  alignas(64) float largest_scores[kWidth] = {};
  alignas(64) float log2_bounds[kWidth] = {};
  alignas(64) float inverse_units[kWidth];
  for (std::int64_t begin = 0; begin < tile.n_rows; begin += kWidth) {
    const std::int64_t end = smaller(tile.n_rows, begin + kWidth);
    for_some_rows(begin, end, [&](std::int64_t row, auto n) {
      bound_weights<n.value>(task, tile, values, panel.n_keys, row, largest_scores + (row - begin),
                             log2_bounds + (row - begin));
    });
    choose_units(task, tile, begin, largest_scores, log2_bounds, inverse_units);
    for_some_rows(begin, end, [&](std::int64_t row, auto n) {
      weigh_rows<n.value>(task, tile, panel, values, row, inverse_units + (row - begin));
    });
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
