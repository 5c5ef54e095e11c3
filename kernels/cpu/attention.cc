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

constexpr std::int64_t kMostCodes = 256;  // of a sum of products with codes: the head's dims, or a
                                          // panel's keys
static_assert(kPanelKeys <= kMostCodes);
constexpr std::int64_t kMostRuns = kPanelKeys / kRunUnit;

// Neighbouring slots of one block.
struct Run {
  const float* k;  // words of the K part, moved to the first slot
  const float* v;
  // Of quantised K and V, moved to the first slot.
  const std::uint16_t* k_scales;
  const std::uint16_t* k_minima;
  const std::uint16_t* v_scales;
  const std::uint16_t* v_minima;
  std::int64_t n_keys;
  std::int64_t first_position;
  std::int64_t n_tokens;  // of the run; slots from here on hold none
  bool masked;
};

struct Panel {
  Run runs[kMostRuns];
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
  // For quantised K and V:
  float* q_sums;      // of a query's elements, for the minima of K
  float* minima;      // what the minima of V add to each element of o
  float* left_units;  // of packed probabilities
  float* q_units;     // of packed queries
  std::int64_t* position;
  std::int64_t first_position;  // of the queries
  std::int64_t last_position;
};

LONGHAUL_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
LONGHAUL_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
LONGHAUL_INLINE float larger_of(float a, float b) { return a > b ? a : b; }
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
  tile.q_sums = take(kRows);
  tile.minima = take(kRows);
  tile.left_units = take(kRows);
  tile.q_units = take(kRows);
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

bool holds_codes(KvType type) { return type == KvType::kInt8 || type == KvType::kInt4; }

// What the largest of these magnitudes takes for integers of 16 bits; its inverse.
struct LeftUnit {
  float unit;
  float inverse;
};
LONGHAUL_INLINE LeftUnit left_unit(float largest) {
  return {largest / 32767.0F, largest > 0.0F ? 32767.0F / largest : 0.0F};
}

// Words of a row of the left side of a product with K: floats, pairs of bf16, or integers.
std::int64_t q_words(const AttentionTask& task) {
  return holds_codes(task.k_type) ? round_up(task.head_dim, 16) / 2 : task.head_dim;
}

void load_query(const AttentionTask& task, const Tile& tile, std::int64_t row, const float* q) {
  const std::int64_t dim = task.head_dim;
  float* to = tile.q + row * q_words(task);
  if (holds_codes(task.k_type)) {
    float largest = 0.0F;
    float sum = 0.0F;
    for (std::int64_t d = 0; d < dim; ++d) {
      largest = larger_of(largest, q[d] < 0.0F ? -q[d] : q[d]);
      sum += q[d];
    }
    const LeftUnit unit = left_unit(largest);
    tile.q_sums[row] = sum;
    tile.q_units[row] = unit.unit + 0.0F * sum;  // not a number where an element is none
    float padded[kMostCodes] = {};
    __builtin_memcpy(padded, q, static_cast<std::size_t>(dim) * sizeof(float));
    pack_left(padded, round_up(dim, 16), unit.inverse, to);
  } else if (kHasBf16Pairs && task.multiplies_bf16_pairs && task.k_type == KvType::kBf16) {
    pack_bf16_pairs(q, dim, to);
  } else {
    __builtin_memcpy(to, q, static_cast<std::size_t>(dim) * sizeof(float));
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
    load_query(task, tile, r, q);
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

// Products with codes -> products with keys.
void scale_scores(const Tile& tile, const Run& run, float* scores) {
  for (std::int64_t i = 0; i < run.n_keys; i += kWidth) {
    const Vec scale = load_halves(run.k_scales + i);
    const Vec minimum = load_halves(run.k_minima + i);
    for (std::int64_t r = 0; r < tile.n_rows; ++r) {
      float* s = scores + r * kPanelKeys + i;
      store(s, load(s) * scale + minimum * broadcast(tile.q_sums[r]));
    }
  }
}

template <typename Format>
void compute_scores(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  std::int64_t column = 0;
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    const Run& run = panel.runs[i];
    const Segment segment = {run.k, task.head_dim / Format::kLanes};
    const Product product = {.a = tile.q,
                             .a_stride = q_words(task),
                             .segments = &segment,
                             .n_segments = 1,
                             .b_stride = task.block_size,
                             .c = tile.scores + column,
                             .c_stride = kPanelKeys,
                             .row_scale = nullptr,
                             .left_units = holds_codes(task.k_type) ? tile.q_units : nullptr};
    multiply<Format, Start::kZero>(tile.n_rows, run.n_keys, product);
    if constexpr (Format::kLanes > 2) scale_scores(tile, run, tile.scores + column);
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

template <bool kToPairs>
void softmax(const AttentionTask& task, const Tile& tile, std::int64_t n_keys) {
  const Vec scale = broadcast(task.sm_scale);
  for (std::int64_t r = 0; r < tile.n_rows; ++r) {
    float* scores = tile.scores + r * kPanelKeys;
    const float panel_max = largest(scores, n_keys) * task.sm_scale;
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

// Probabilities -> the weights of the values' codes, packed.
void weigh_codes(const Tile& tile, const Panel& panel) {
  for (std::int64_t r = 0; r < tile.n_rows; ++r) {
    float* row = tile.scores + r * kPanelKeys;
    float* p = row;
    Vec minima{};
    Vec largest{};
    for (std::int64_t i = 0; i < panel.n_runs; ++i) {
      const Run& run = panel.runs[i];
      for (std::int64_t j = 0; j < run.n_keys; j += kWidth, p += kWidth) {
        const Vec probability = load(p);
        const Vec weight = probability * load_halves(run.v_scales + j);
        minima += probability * load_halves(run.v_minima + j);
        largest = max(largest, weight);
        store(p, weight);
      }
    }
    const LeftUnit unit = left_unit(max_of(largest));
    tile.minima[r] = sum_of(minima);
    tile.left_units[r] = unit.unit;
    pack_left(row, panel.n_keys, unit.inverse, row);
  }
}

void add_minima(const AttentionTask& task, const Tile& tile) {
  for (std::int64_t r = 0; r < tile.n_rows; ++r) {
    float* o = tile.o + r * tile.o_stride;
    for (std::int64_t d = 0; d < task.head_dim; ++d) o[d] += tile.minima[r];
  }
}

template <typename Format>
void add_values(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  constexpr bool kCodes = Format::kLanes > 2;
  if constexpr (kCodes) weigh_codes(tile, panel);
  Segment segments[kMostRuns];
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    segments[i] = {panel.runs[i].v, panel.runs[i].n_keys / Format::kLanes};
  }
  const Product product = {.a = tile.scores,
                           .a_stride = kPanelKeys,
                           .segments = segments,
                           .n_segments = panel.n_runs,
                           .b_stride = task.head_dim,
                           .c = tile.o,
                           .c_stride = tile.o_stride,
                           .row_scale = tile.factor,
                           .left_units = kCodes ? tile.left_units : nullptr};
  multiply<Format, Start::kScale>(tile.n_rows, task.head_dim, product);
  if constexpr (kCodes) add_minima(task, tile);
}

void attend_panel(const AttentionTask& task, const Tile& tile, Panel& panel) {
  if (panel.n_keys == 0) return;
  const bool pairs = kHasBf16Pairs && task.multiplies_bf16_pairs;
  switch (task.k_type) {
    case KvType::kF32:
      compute_scores<FloatProduct>(task, tile, panel);
      break;
    case KvType::kBf16:
      pairs ? compute_scores<PairedBf16Product>(task, tile, panel)
            : compute_scores<WidenedBf16Product>(task, tile, panel);
      break;
    case KvType::kInt8:
      compute_scores<Int8Product>(task, tile, panel);
      break;
    case KvType::kInt4:
      compute_scores<Int4Product>(task, tile, panel);
  }
  if (task.v_type == KvType::kBf16 && pairs) {
    softmax<kHasBf16Pairs>(task, tile, panel.n_keys);
    add_values<PairedBf16Product>(task, tile, panel);
  } else {
    softmax<false>(task, tile, panel.n_keys);
    switch (task.v_type) {
      case KvType::kF32:
        add_values<FloatProduct>(task, tile, panel);
        break;
      case KvType::kBf16:
        add_values<WidenedBf16Product>(task, tile, panel);
        break;
      case KvType::kInt8:
        add_values<Int8Product>(task, tile, panel);
        break;
      case KvType::kInt4:
        add_values<Int4Product>(task, tile, panel);
    }
  }
  panel.n_runs = panel.n_keys = 0;
}

// Values of one token in a word; see kernels/kv_block.h.
std::int64_t lanes_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 1;
    case KvType::kBf16:
      return 2;
    case KvType::kInt8:
      return 4;
    case KvType::kInt4:
      return 8;
  }
  return 0;
}

}  // namespace

std::size_t attend_scratch_bytes(std::int64_t head_dim) {
  const std::int64_t floats =
      kRows * (head_dim + kPanelKeys + round_up(head_dim, 16) + 10) + 16 * 12;
  return static_cast<std::size_t>(floats) * sizeof(float);
}

void attend(const AttentionTask& task) {
  const FlushDenormals flush;
  Tile tile = divide_scratch(task);
  load_tile(task, tile);
  Panel panel;
  panel.n_runs = panel.n_keys = 0;
  const std::int64_t v_lanes = lanes_of(task.v_type);
  for (std::int64_t b = 0; b < task.n_blocks; ++b) {
    const KvBlockRef& block = task.blocks[b];
    const Slots slots = visible_slots(task, tile, block);
    const auto* k = reinterpret_cast<const float*>(block.data);
    const auto* v = reinterpret_cast<const float*>(block.data + task.v_at);
    const auto halves = [&](std::size_t at, std::int64_t slot) {
      return reinterpret_cast<const std::uint16_t*>(block.data + at) + slot;
    };
    for (std::int64_t slot = slots.begin; slot < slots.end;) {
      Run run;
      run.n_keys = smaller(slots.end - slot, kPanelKeys - panel.n_keys);
      run.k = k + slot;
      run.v = v + slot / v_lanes * task.head_dim;
      run.k_scales = halves(task.k_scales_at, slot);
      run.k_minima = halves(task.k_minima_at, slot);
      run.v_scales = halves(task.v_scales_at, slot);
      run.v_minima = halves(task.v_minima_at, slot);
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
