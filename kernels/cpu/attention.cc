// Attention of one tile of queries over paged blocks, on one thread: online softmax (Milakov &
// Gimelshein 2018; FlashAttention, Dao et al. 2022).
//
// Keys are taken in panels of at most kPanelKeys, each a few runs of neighbouring slots of blocks.
// A panel's scores are one matrix product, the softmax goes over whole rows of the panel, and its
// values are a second product that adds to the outputs. Blocks that the mask hides from the whole
// tile never enter a panel; runs that every query sees are not masked.
#include "kernels/cpu/attention.h"

#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kRows = kAttentionTileRows;
constexpr std::int64_t kPanelKeys = 256;
constexpr std::int64_t kRunUnit = 16;  // runs start and end at multiples of it: whole vectors

// Neighbouring slots of one block.
struct Run {
  const float* k;  // words of the K part, moved to the first slot
  const float* v;
  std::int64_t n_keys;
  std::int64_t first_position;
  std::int64_t n_tokens;  // of the run; slots from here on hold none
  bool masked;
};

struct Panel {
  Run runs[kPanelKeys / kRunUnit];
  std::int64_t n_runs;
  std::int64_t n_keys;
};

struct Tile {
  std::int64_t n_rows;
  std::int64_t o_stride;
  float* q;       // [n_rows, head_dim] words: floats, or bf16 pairs
  float* scores;  // [n_rows, kPanelKeys], then the probabilities
  float* o;       // [n_rows, o_stride]
  float* m;       // [kRows] each
  float* l;
  float* factor;
  float* sums;
  std::int64_t* position;
  std::int64_t first_position;  // of the queries
  std::int64_t last_position;
};

LONGHAUL_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
LONGHAUL_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
LONGHAUL_INLINE std::int64_t round_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

Tile divide_scratch(const AttentionTask& task) {
  Tile tile{};
  auto* next = reinterpret_cast<float*>(task.scratch);
  const auto take = [&](std::int64_t n) {
    float* out = next;
    next += round_up(n, 16);
    return out;
  };
  tile.n_rows = task.n_tokens * task.n_heads;
  tile.o_stride = round_up(task.head_dim, 16);
  tile.q = take(kRows * task.head_dim);
  tile.scores = take(kRows * kPanelKeys);
  tile.o = take(kRows * tile.o_stride);
  tile.m = take(kRows);
  tile.l = take(kRows);
  tile.factor = take(kRows);
  tile.sums = take(kRows);
  tile.position = reinterpret_cast<std::int64_t*>(take(2 * kRows));
  tile.first_position = task.q_positions[0];
  tile.last_position = task.q_positions[task.n_tokens - 1];
  return tile;
}

void pack_bf16_pairs(const float* x, std::int64_t n, float* out) {
  auto* halves = reinterpret_cast<unsigned char*>(out);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint16_t bits = to_bf16_bits(x[i]);
    __builtin_memcpy(halves + 2 * i, &bits, sizeof bits);
  }
}

void load_tile(const AttentionTask& task, Tile& tile) {
  const std::int64_t dim = task.head_dim;
  for (std::int64_t r = 0; r < kRows; ++r) {  // rows that do not exist are computed as empty ones
    tile.m[r] = -kInfinity;
    tile.l[r] = tile.sums[r] = tile.factor[r] = 0.0F;
  }
  for (std::int64_t r = 0; r < tile.n_rows; ++r) {
    const std::int64_t token = r / task.n_heads;
    const std::int64_t head = r % task.n_heads;
    tile.position[r] = task.q_positions[token];
    const float* q = task.q + token * task.q_token_stride + head * task.q_head_stride;
    if (kHasBf16Pairs && task.multiplies_bf16_pairs && task.k_is_bf16) {
      pack_bf16_pairs(q, dim, tile.q + r * dim);
    } else {
      __builtin_memcpy(tile.q + r * dim, q, static_cast<std::size_t>(dim) * sizeof(float));
    }
    float* o = tile.o + r * tile.o_stride;
    if (task.starts_empty) {
      for (std::int64_t d = 0; d < dim; ++d) o[d] = 0.0F;
      continue;
    }
    tile.m[r] = task.m[token * task.m_token_stride + head * task.m_head_stride];
    tile.l[r] = task.l[token * task.l_token_stride + head * task.l_head_stride];
    __builtin_memcpy(o, task.o + token * task.o_token_stride + head * task.o_head_stride,
                     static_cast<std::size_t>(dim) * sizeof(float));
  }
}

void store_tile(const AttentionTask& task, const Tile& tile) {
  for (std::int64_t r = 0; r < tile.n_rows; ++r) {
    const std::int64_t token = r / task.n_heads;
    const std::int64_t head = r % task.n_heads;
    task.m[token * task.m_token_stride + head * task.m_head_stride] = tile.m[r];
    task.l[token * task.l_token_stride + head * task.l_head_stride] = tile.l[r];
    __builtin_memcpy(task.o + token * task.o_token_stride + head * task.o_head_stride,
                     tile.o + r * tile.o_stride,
                     static_cast<std::size_t>(task.head_dim) * sizeof(float));
  }
}

// Slots [begin, end) of a block that any query of the tile may see, rounded to whole units.
struct Slots {
  std::int64_t begin;
  std::int64_t end;
};

Slots visible_slots(const AttentionTask& task, const Tile& tile, const KvBlockRef& block) {
  const std::int64_t first = block.first_position;
  const std::int64_t end = smaller(block.n_tokens, tile.last_position - first + 1);
  std::int64_t begin = 0;
  if (first >= task.mask_sink) {  // else the block's first slot is a sink
    begin = larger(0, tile.first_position - task.mask_recent + 1 - first);
  }
  if (begin >= end) return {0, 0};
  return {begin / kRunUnit * kRunUnit, round_up(end, kRunUnit)};
}

bool every_query_sees(const AttentionTask& task, const Tile& tile, const Run& run) {
  if (run.n_tokens < run.n_keys) return false;
  const std::int64_t last = run.first_position + run.n_keys - 1;
  if (last > tile.first_position) return false;
  return last < task.mask_sink || tile.last_position - run.first_position < task.mask_recent;
}

// Writes -inf over the scores of a row that its query must not see:
//   slots of the run:  sinks [0, sinks) | hidden | recent [recent, end) | hidden
void hide(const AttentionTask& task, const Run& run, std::int64_t position, float* scores) {
  const std::int64_t end = larger(0, smaller(run.n_tokens, position - run.first_position + 1));
  const std::int64_t sinks = larger(0, smaller(end, task.mask_sink - run.first_position));
  const std::int64_t recent =
      smaller(end, larger(sinks, position - task.mask_recent + 1 - run.first_position));
  for (std::int64_t i = sinks; i < recent; ++i) scores[i] = -kInfinity;
  for (std::int64_t i = end; i < run.n_keys; ++i) scores[i] = -kInfinity;
}

template <typename Format>
void compute_scores(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  std::int64_t column = 0;
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    const Run& run = panel.runs[i];
    const Product product = {.a = tile.q,
                             .a_stride = task.head_dim,
                             .b = run.k,
                             .b_stride = task.block_size,
                             .c = tile.scores + column,
                             .c_stride = kPanelKeys,
                             .n_steps = task.head_dim / Format::kLanes,
                             .start = Start::kZero,
                             .row_scale = nullptr};
    multiply<Format>(tile.n_rows, run.n_keys, product);
    for (std::int64_t r = 0; run.masked && r < tile.n_rows; ++r) {
      hide(task, run, tile.position[r], tile.scores + r * kPanelKeys + column);
    }
    column += run.n_keys;
  }
}

// Scores of a row -> probabilities exp(score - m), floats or pairs of bf16 in place; their sum.
template <bool kToPairs>
LONGHAUL_INLINE float exponentials(float* scores, std::int64_t n_keys, Vec scale, Vec minus_m) {
  Vec sum{};
  for (std::int64_t i = 0; i < n_keys; i += kWidth) {
    const Vec p = exp(load(scores + i) * scale + minus_m);
    sum += p;
#if defined(__AVX512BF16__)
    if constexpr (kToPairs) {
      store_as_bf16(scores + i / 2, p);
      continue;
    }
#endif
    store(scores + i, p);
  }
  return sum_of(sum);
}

template <bool kToPairs>
void softmax(const AttentionTask& task, const Tile& tile, std::int64_t n_keys) {
  const Vec scale = broadcast(task.sm_scale);
  for (std::int64_t r = 0; r < tile.n_rows; ++r) {
    float* scores = tile.scores + r * kPanelKeys;
    Vec best = broadcast(-kInfinity);
    for (std::int64_t i = 0; i < n_keys; i += kWidth) best = max(best, load(scores + i));
    const float panel_max = max_of(best) * task.sm_scale;
    const float old = tile.m[r];
    const float m = panel_max > old ? panel_max : old;
    const float reference = m == -kInfinity ? 0.0F : m;  // no key yet: exp(-inf - 0) = 0
    tile.m[r] = m;
    tile.factor[r] = old - reference;
    tile.sums[r] = exponentials<kToPairs>(scores, n_keys, scale, broadcast(-reference));
  }
  for (std::int64_t r = 0; r < tile.n_rows; r += kWidth) {
    const Vec factor = exp(load(tile.factor + r));
    store(tile.factor + r, factor);
    store(tile.l + r, load(tile.l + r) * factor + load(tile.sums + r));
  }
}

template <typename Format>
void add_values(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  std::int64_t column = 0;
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    const Run& run = panel.runs[i];
    const Product product = {
        .a = tile.scores + column / Format::kLanes * Format::kLeftWords,
        .a_stride = kPanelKeys,
        .b = run.v,
        .b_stride = task.head_dim,
        .c = tile.o,
        .c_stride = tile.o_stride,
        .n_steps = run.n_keys / Format::kLanes,
        .start = i == 0 ? Start::kScale : Start::kAdd,
        .row_scale = tile.factor,
    };
    multiply<Format>(tile.n_rows, task.head_dim, product);
    column += run.n_keys;
  }
}

void attend_panel(const AttentionTask& task, const Tile& tile, Panel& panel) {
  if (panel.n_keys == 0) return;
  const bool pairs = kHasBf16Pairs && task.multiplies_bf16_pairs;
  if (!task.k_is_bf16) {
    compute_scores<FloatProduct>(task, tile, panel);
  } else if (pairs) {
    compute_scores<PairedBf16Product>(task, tile, panel);
  } else {
    compute_scores<WidenedBf16Product>(task, tile, panel);
  }
  if (!task.v_is_bf16) {
    softmax<false>(task, tile, panel.n_keys);
    add_values<FloatProduct>(task, tile, panel);
  } else if (pairs) {
    softmax<kHasBf16Pairs>(task, tile, panel.n_keys);
    add_values<PairedBf16Product>(task, tile, panel);
  } else {
    softmax<false>(task, tile, panel.n_keys);
    add_values<WidenedBf16Product>(task, tile, panel);
  }
  panel.n_runs = panel.n_keys = 0;
}

}  // namespace

std::size_t attend_scratch_bytes(std::int64_t head_dim) {
  const std::int64_t floats = kRows * (head_dim + kPanelKeys + round_up(head_dim, 16) + 6) + 16 * 8;
  return static_cast<std::size_t>(floats) * sizeof(float);
}

void attend(const AttentionTask& task) {
  const FlushDenormals flush;
  Tile tile = divide_scratch(task);
  load_tile(task, tile);
  Panel panel;
  panel.n_runs = panel.n_keys = 0;
  const std::int64_t k_lanes = task.k_is_bf16 ? 2 : 1;
  const std::int64_t v_lanes = task.v_is_bf16 ? 2 : 1;
  for (std::int64_t b = 0; b < task.n_blocks; ++b) {
    const KvBlockRef& block = task.blocks[b];
    const Slots slots = visible_slots(task, tile, block);
    const auto* k = reinterpret_cast<const float*>(block.data);
    const float* v = k + task.block_size * task.head_dim / k_lanes;
    for (std::int64_t slot = slots.begin; slot < slots.end;) {
      Run run;
      run.n_keys = smaller(slots.end - slot, kPanelKeys - panel.n_keys);
      run.k = k + slot;
      run.v = v + slot / v_lanes * task.head_dim;
      run.first_position = block.first_position + slot;
      run.n_tokens = smaller(block.n_tokens - slot, run.n_keys);
      run.masked = !every_query_sees(task, tile, run);
      panel.runs[panel.n_runs++] = run;
      panel.n_keys += run.n_keys;
      slot += run.n_keys;
      if (panel.n_keys == kPanelKeys) attend_panel(task, tile, panel);
    }
  }
  attend_panel(task, tile, panel);
  store_tile(task, tile);
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
