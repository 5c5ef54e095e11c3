// The two matrix products of attention for many rows over fp8, where the instruction set multiplies
// pairs of bf16, which hold E4M3 codes exactly: groups of a panel's keys, and then of its values'
// dims, become such pairs, 16 KiB that stay in the first cache while all rows pass. Scales of keys
// go to the scores, those of values to the probabilities (attention_softmax.h). See
// kernels/cpu/isa/attention.cc.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_packed.h"
#include "kernels/cpu/isa/attention_products.h"
#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

#if defined(__AVX512BF16__)

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kPairColumns = kTileVectors * kWidth;

// A vector of words of four codes, or its first n: two rows of pairs.
LONGHAUL_INLINE void store_pairs(const float* words, std::int64_t n, float* out) {
  const auto codes = reinterpret_cast<Words>(n >= kWidth ? load(words) : load_first(words, n));
  store(out, reinterpret_cast<Vec>(e4m3_pairs<0>(codes)));
  store(out + kPairColumns, reinterpret_cast<Vec>(e4m3_pairs<1>(codes)));
}

// The next n keys of a panel, n at most kPairColumns: [head_dim / 2, kPairColumns] words. Moves
// `run` and `slot` on.
LONGHAUL_INLINE void pair_keys(const AttentionTask& task, const Panel& panel, std::int64_t n,
                               std::int64_t& run, std::int64_t& slot, float* out) {
  for (std::int64_t i = 0; i < n; i += kWidth) {
    const float* words = panel.runs[run].k + slot;
    for (std::int64_t d = 0; d < task.head_dim; d += kE4m3Lanes, words += task.block_size)
      store_pairs(words, kWidth, out + i + d / 2 * kPairColumns);
    slot += kWidth;
    if (slot == panel.runs[run].n_keys) ++run, slot = 0;
  }
}

// Dims [dim, dim + n) of all values of a panel, n at most kPairColumns: [n_keys / 2, kPairColumns]
// words.
LONGHAUL_INLINE void pair_values(const AttentionTask& task, const Panel& panel, std::int64_t dim,
                                 std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    const float* words = panel.runs[i].v + dim;
    const std::int64_t n_keys = panel.runs[i].n_keys;
    for (std::int64_t j = 0; j < n_keys; j += kE4m3Lanes, words += task.head_dim) {
      for (std::int64_t d = 0; d < n; d += kWidth) store_pairs(words + d, n - d, out + d);
      out += 2 * kPairColumns;
    }
  }
}

void compute_paired_scores(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  const Segment segment = {tile.packed, task.head_dim / 2};
  Product product = {.a = tile.q,
                     .a_stride = task.head_dim,
                     .segments = &segment,
                     .n_segments = 1,
                     .b_stride = kPairColumns,
                     .c = tile.scores,
                     .c_stride = kScoreStride,
                     .row_scale = nullptr,
                     .left_units = nullptr};
  std::int64_t run = 0;
  std::int64_t slot = 0;
  for (std::int64_t key = 0; key < panel.n_keys; key += kPairColumns) {
    const std::int64_t n = smaller(kPairColumns, panel.n_keys - key);
    pair_keys(task, panel, n, run, slot, tile.packed);
    prefetch_values(task, panel, key / kPairColumns,
                    round_up(panel.n_keys, kPairColumns) / kPairColumns);
    multiply<PairedBf16Product, Start::kZero>(tile.n_rows, n, product);
    product.c += kPairColumns;
  }
  float* scores = tile.scores;
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    scale_scores<false>(tile, panel.runs[i], scores);
    scores += panel.runs[i].n_keys;
  }
}

void add_paired_values(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  const Segment segment = {tile.packed, panel.n_keys / 2};
  Product product = {.a = tile.scores,
                     .a_stride = kScoreStride,
                     .segments = &segment,
                     .n_segments = 1,
                     .b_stride = kPairColumns,
                     .c = tile.o,
                     .c_stride = tile.o_stride,
                     .row_scale = tile.factor,
                     .left_units = nullptr};
  for (std::int64_t dim = 0; dim < task.head_dim; dim += kPairColumns) {
    const std::int64_t n = smaller(kPairColumns, task.head_dim - dim);
    pair_values(task, panel, dim, n, tile.packed);
    prefetch_next_keys(task, panel, dim / kPairColumns,
                       round_up(task.head_dim, kPairColumns) / kPairColumns);
    multiply<PairedBf16Product, Start::kScale>(tile.n_rows, n, product);
    product.c += kPairColumns;
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE

#endif
