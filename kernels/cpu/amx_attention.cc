// Attention of many rows with bf16 caches by AMX, on one thread. The same panels and the same
// softmax as kernels/cpu/attention.cc; but as the products take a tenth of the time here, a panel
// passes by groups of 32 rows, whose scores and sums stay in the first cache, and only sums whose
// maximum moved are scaled.
#include "kernels/cpu/amx.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_panels.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/attention_tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kGroupRows = 2 * kAmxRows;
constexpr std::int64_t kGroupColumns = 2 * kAmxColumns;
static_assert(kAttentionTileRows % kGroupRows == 0 && kPanelKeys % kAmxPairs == 0);

// Rows from `begin` on, at most a group; their scores lie where those of all groups do.
Tile group_of(const AttentionTask& task, const Tile& tile, std::int64_t begin) {
  Tile group = tile;
  group.n_rows = smaller(kGroupRows, tile.n_rows - begin);
  group.q += begin * q_words(task);
  group.o += begin * tile.o_stride;
  for (float** p : {&group.m, &group.l, &group.factor, &group.sums, &group.reference}) *p += begin;
  group.position += begin;
  return group;
}

void score_group(const AttentionTask& task, const Tile& group, const Panel& panel) {
  float* scores = group.scores;
  const std::int64_t k_stride = task.block_size * 4;
  const std::int64_t q_stride = q_words(task) * 4;
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    const Run& run = panel.runs[i];
    for (std::int64_t key = 0; key < run.n_keys; key += kGroupColumns) {
      amx_clear_sums();
      for (std::int64_t dim = 0; dim < task.head_dim; dim += kAmxPairs) {
        amx_add_pairs(group.q + dim / 2, q_stride, run.k + key + dim / 2 * task.block_size,
                      k_stride);
      }
      amx_store_sums(scores, kScoreStride);
      scores += kGroupColumns;
    }
  }
}

void scale_sums(const AttentionTask& task, const Tile& group) {
  for (std::int64_t r = 0; r < group.n_rows; ++r) {
    if (group.factor[r] == 1.0F) continue;
    const Vec factor = broadcast(group.factor[r]);
    float* o = group.o + r * group.o_stride;
    for (std::int64_t d = 0; d < task.head_dim; d += kWidth) store(o + d, load(o + d) * factor);
  }
}

void add_group_values(const AttentionTask& task, const Tile& group, const Panel& panel) {
  scale_sums(task, group);
  finish_stores();
  const std::int64_t v_stride = task.head_dim * 4;
  for (std::int64_t dim = 0; dim < task.head_dim; dim += kGroupColumns) {
    amx_load_sums(group.o + dim, group.o_stride);
    const float* probabilities = group.scores;
    for (std::int64_t i = 0; i < panel.n_runs; ++i) {
      const Run& run = panel.runs[i];
      for (std::int64_t key = 0; key < run.n_keys; key += kAmxPairs) {
        amx_add_pairs(probabilities, kScoreStride * 4, run.v + key / 2 * task.head_dim + dim,
                      v_stride);
        probabilities += kAmxPairs / 2;
      }
    }
    amx_store_sums(group.o + dim, group.o_stride);
  }
}

void attend_panel(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  for (std::int64_t begin = 0; begin < tile.n_rows; begin += kGroupRows) {
    const Tile group = group_of(task, tile, begin);
    score_group(task, group, panel);
    finish_stores();
    hide_scores(task, group, panel);
    softmax<Into::kBf16Pairs>(task, group, panel.n_keys);
    add_group_values(task, group, panel);
  }
}

}  // namespace

std::size_t amx_attend_scratch_bytes(std::int64_t head_dim) {
  const std::int64_t floats = kRows * (2 * round_up(head_dim, kDimUnit) + kScoreStride + 11) +
                              packed_floats(head_dim) + 16 * 14;
  return static_cast<std::size_t>(floats) * sizeof(float);
}

void amx_attend(const AttentionTask& task) {
  const FlushDenormals flush;
  const AmxRegisters registers;
  AttentionTask pairs = task;
  pairs.multiplies_bf16_pairs = true;
  Tile tile = divide_scratch(pairs);
  load_tile(pairs, tile);
  finish_stores();
  for_each_panel(pairs, tile, [&](const Panel& panel) { attend_panel(pairs, tile, panel); });
  store_tile(pairs, tile);
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
