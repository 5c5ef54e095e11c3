// Mask and online softmax of a panel's scores (Milakov & Gimelshein 2018). See
// kernels/cpu/isa/attention.cc; for values that are codes, attention_weights.h.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_mask.h"
#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

void hide_scores(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  float* scores = tile.scores;
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    const Run& run = panel.runs[i];
    for (std::int64_t r = 0; run.masked && r < tile.n_rows; ++r) {
      hide(task, tile, run, r, scores + r * kScoreStride);
    }
    scores += run.n_keys;
  }
}

// What a panel's probabilities become: how exact they need be, and where they are stored.
enum class Into { kFloats, kBf16Pairs };

constexpr int kBeside = 4;  // vectors of probabilities that are computed side by side

template <int kCount, bool kScaled>
LONGHAUL_INLINE void exponentials_of(float* scores, float scale, float m, const float* value_scales,
                                     Vec& sum) {
  Vec p[kCount];
  each<kCount>([&](int v) { p[v] = load(scores + v * kWidth) * broadcast(scale) - broadcast(m); });
  exp_below(p);
  each<kCount>([&](int v) { sum += p[v]; });
  if constexpr (kScaled)
    each<kCount>([&](int v) { p[v] = p[v] * load(value_scales + v * kWidth); });
  each<kCount>([&](int v) { store(scores + v * kWidth, p[v]); });
}

// Scores of a row -> probabilities exp(scale score - m), floats or pairs of bf16 in place, with
// kScaled times the scales of their values; the probabilities' sum.
template <Into kInto, bool kScaled>
LONGHAUL_INLINE float exponentials(float* scores, std::int64_t n_keys, float scale, float m,
                                   const float* value_scales) {
  Vec sum{};
#if defined(__AVX512BF16__)
  if constexpr (kInto == Into::kBf16Pairs) {
    const Vec binary_scale = broadcast(scale * kLog2E);
    const Vec binary_m = broadcast(m * kLog2E);
    for (std::int64_t i = 0; i < n_keys; i += kWidth) {
      Vec p = exp2_below<3>(load(scores + i) * binary_scale - binary_m);
      sum += p;
      if constexpr (kScaled) p = p * load(value_scales + i);
      store_as_bf16(scores + i / 2, p);
    }
    return sum_of(sum);
  }
#endif
  std::int64_t i = 0;
  for (; i + kBeside * kWidth <= n_keys; i += kBeside * kWidth)
    exponentials_of<kBeside, kScaled>(scores + i, scale, m, value_scales + i, sum);
  for (; i < n_keys; i += kWidth)
    exponentials_of<1, kScaled>(scores + i, scale, m, value_scales + i, sum);
  return sum_of(sum);
}

// n_keys is a multiple of kRunUnit; four maxima at a time, for each waits for itself.
LONGHAUL_INLINE float largest(const float* scores, std::int64_t n_keys) {
  Vec best[4] = {load(scores), load(scores), load(scores), load(scores)};
  std::int64_t i = 0;
  for (; i + 4 * kWidth <= n_keys; i += 4 * kWidth) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) best[v] = max(best[v], load(scores + i + v * kWidth));
  }
  for (; i < n_keys; i += kWidth) best[0] = max(best[0], load(scores + i));
  return max_of(max(max(best[0], best[1]), max(best[2], best[3])));
}

// A few rows at a time, which stay in the first cache between the two passes: a row's pass begins
// with what the one before it ends with, so passes of different rows must overlap.
constexpr std::int64_t kSoftmaxRows = 16;

// How many lines few rows ask for in the middle of a panel, while softmax reads nothing.
constexpr std::int64_t kLinesOfSoftmax = 32;

// What a row's scores are held against once a panel's largest is known; what that takes from the
// sums and outputs so far is exp(factor). T: float, or Vec for kWidth rows.
template <typename T>
struct Raised {
  T m;
  T reference;
  T factor;
};
template <typename T>
LONGHAUL_INLINE Raised<T> raised(T old, T panel_max) {
  const T m = panel_max > old ? panel_max : old;
  const T reference = m == T{} - kInfinity ? T{} : m;  // no key yet: exp(-inf - 0) = 0
  return {m, reference, old - reference};
}

// Of rows [begin, end).
LONGHAUL_INLINE void raise_references(const AttentionTask& task, const Tile& tile,
                                      std::int64_t n_keys, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float panel_max = largest(tile.scores + r * kScoreStride, n_keys) * task.sm_scale;
    const Raised<float> now = raised(tile.m[r], panel_max);
    tile.m[r] = now.m;
    tile.reference[r] = now.reference;
    tile.factor[r] = now.factor;
  }
}

// Adds a panel's sums to those so far, once factor is what those keep.
LONGHAUL_INLINE void add_sums(const Tile& tile) {
  for (std::int64_t r = 0; r < tile.n_rows; r += kWidth) {
    const Vec factor = exp_below(load(tile.factor + r));
    store(tile.factor + r, factor);
    store(tile.l + r, load(tile.l + r) * factor + load(tile.sums + r));
  }
}

// kScaled: values are codes that their scales alone widen (fp8).
template <Into kInto, bool kScaled = false>
void softmax(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  alignas(64) float scales[kScaled ? kPanelKeys : kWidth];
  if constexpr (kScaled) floats_of_panel(panel, &Run::v_scales, 0, scales);
  for (std::int64_t i = 0; panel.ahead != nullptr && i < kLinesOfSoftmax; i += 8)
    panel.ahead->ask<8>();
  for (std::int64_t begin = 0; begin < tile.n_rows; begin += kSoftmaxRows) {
    const std::int64_t end = smaller(tile.n_rows, begin + kSoftmaxRows);
    raise_references(task, tile, panel.n_keys, begin, end);
    for (std::int64_t r = begin; r < end; ++r) {
      tile.sums[r] = exponentials<kInto, kScaled>(tile.scores + r * kScoreStride, panel.n_keys,
                                                  task.sm_scale, tile.reference[r], scales);
    }
  }
  add_sums(tile);
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
