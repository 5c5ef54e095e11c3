// Mask and online softmax of a panel's scores (Milakov & Gimelshein 2018). See
// kernels/cpu/isa/attention.cc.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_mask.h"
#include "kernels/cpu/isa/attention_tile.h"

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
enum class Into { kFloats, kBf16Pairs, kCodeWeights };

constexpr int kBeside = 4;  // vectors of probabilities that are computed side by side

template <int kCount>
LONGHAUL_INLINE void exponentials_of(float* scores, float scale, float m, Vec& sum) {
  Vec p[kCount];
  each<kCount>([&](int v) { p[v] = load(scores + v * kWidth) * broadcast(scale) - broadcast(m); });
  exp_below(p);
  each<kCount>([&](int v) { sum += p[v]; });
  each<kCount>([&](int v) { store(scores + v * kWidth, p[v]); });
}

// Scores of a row -> probabilities exp(scale score - m), floats or pairs of bf16 in place; their
// sum.
template <Into kInto>
LONGHAUL_INLINE float exponentials(float* scores, std::int64_t n_keys, float scale, float m) {
  Vec sum{};
#if defined(__AVX512F__)
  if constexpr (kInto != Into::kFloats) {
    const Vec binary_scale = broadcast(scale * kLog2E);
    const Vec binary_m = broadcast(m * kLog2E);
    for (std::int64_t i = 0; i < n_keys; i += kWidth) {
      const Vec p = exp2_below < kInto == Into::kBf16Pairs
                        ? 3
                        : 5 > (load(scores + i) * binary_scale - binary_m);
      sum += p;
#if defined(__AVX512BF16__)
      if constexpr (kInto == Into::kBf16Pairs) {
        store_as_bf16(scores + i / 2, p);
        continue;
      }
#endif
      store(scores + i, p);
    }
    return sum_of(sum);
  }
#endif
  std::int64_t i = 0;
  for (; i + kBeside * kWidth <= n_keys; i += kBeside * kWidth)
    exponentials_of<kBeside>(scores + i, scale, m, sum);
  for (; i < n_keys; i += kWidth) exponentials_of<1>(scores + i, scale, m, sum);
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

template <Into kInto>
void softmax(const AttentionTask& task, const Tile& tile, std::int64_t n_keys) {
  for (std::int64_t begin = 0; begin < tile.n_rows; begin += kSoftmaxRows) {
    const std::int64_t end = smaller(tile.n_rows, begin + kSoftmaxRows);
    for (std::int64_t r = begin; r < end; ++r) {
      const float panel_max = largest(tile.scores + r * kScoreStride, n_keys) * task.sm_scale;
      const float old = tile.m[r];
      const float m = panel_max > old ? panel_max : old;
      tile.m[r] = m;
      tile.reference[r] = m == -kInfinity ? 0.0F : m;  // no key yet: exp(-inf - 0) = 0
      tile.factor[r] = old - tile.reference[r];
    }
    for (std::int64_t r = begin; r < end; ++r) {
      tile.sums[r] = exponentials<kInto>(tile.scores + r * kScoreStride, n_keys, task.sm_scale,
                                         tile.reference[r]);
    }
  }
  for (std::int64_t r = 0; r < tile.n_rows; r += kWidth) {
    const Vec factor = exp_below(load(tile.factor + r));
    store(tile.factor + r, factor);
    store(tile.l + r, load(tile.l + r) * factor + load(tile.sums + r));
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
