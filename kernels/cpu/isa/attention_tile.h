// One tile of queries on its way through attention: its place in the thread's scratch memory, and
// the panel of keys that it looks at. See kernels/cpu/isa/attention.cc.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/packed_tile.h"
#include "kernels/cpu/isa/read_ahead.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kRows = kAttentionTileRows;
#if defined(LONGHAUL_AMX_RUNS)
constexpr std::int64_t kPanelKeys = 256;
// What registers take of K and V: every run is of so many keys.
constexpr std::int64_t kRunUnit = 32;
constexpr std::int64_t kMostRunKeys = 32;
constexpr std::int64_t kFewestPanelKeys = kPanelKeys;
#else
// With so many keys, a packed group of columns fills half of the first cache.
constexpr std::int64_t kPanelKeys = 128;
constexpr std::int64_t kRunUnit = 16;  // runs start and end at multiples of it: whole vectors
constexpr std::int64_t kMostRunKeys = kPanelKeys;
// Of few rows; with 8 lanes they compute rather than wait.
constexpr std::int64_t kFewestPanelKeys = kWidth == 16 ? 64 : kPanelKeys;
#endif
// Of the scores: not a power of two, or all rows would fall on the same sets of the first cache.
constexpr std::int64_t kScoreStride = kPanelKeys + 16;
constexpr std::int64_t kDimUnit = 32;  // of o's rows: whole groups of packed columns

constexpr std::int64_t kMostCodes = 256;  // of a sum of products with codes: the head's dims, or a
                                          // panel's keys
static_assert(kPanelKeys <= kMostCodes && kMostCodes / 2 <= kScoreStride);
static_assert(kDimUnit % kPackedColumns == 0 && kPanelKeys % kPackedColumns == 0);
constexpr std::int64_t kMostRuns = kPanelKeys / kRunUnit;

// Neighbouring slots of one block.
struct Run {
  const float* k;  // words of the K part, moved to the first slot
  const float* v;
  // Of quantised K and V, moved to the first slot; of K in groups, the block's first.
  const std::uint16_t* k_scales;
  const std::uint16_t* k_minima;
  const std::uint16_t* v_scales;
  const std::uint16_t* v_minima;
  std::int64_t n_keys;
  std::int64_t first_slot;
  std::int64_t first_position;
  std::int64_t n_tokens;  // of the run; slots from here on hold none
  const SeenBy* seen_by;  // moved to the first slot; null: all heads see all
  bool masked;
};

struct Panel {
  Run runs[kMostRuns];
  std::int64_t n_runs;
  std::int64_t n_keys;
  std::int64_t first_block;  // of the task, in which the first run lies
  std::int64_t next_block;   // the first that is not in the panel
  ReadAhead* ahead;          // null: rows are too many to wait for memory
};

LONGHAUL_INLINE void floats_of_halves(const std::uint16_t* halves, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += kWidth) store(out + i, load_halves(halves + i));
}
// What every key of a panel has one of, `offset` further on.
LONGHAUL_INLINE void floats_of_panel(const Panel& panel, const std::uint16_t* Run::*halves,
                                     std::int64_t offset, float* out) {
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    const Run& run = panel.runs[i];
    floats_of_halves(run.*halves + offset, run.n_keys, out);
    out += run.n_keys;
  }
}

struct Tile {
  std::int64_t n_rows;
  std::int64_t first_row;  // of the task's
  std::int64_t o_stride;
  float* q;       // [n_rows, q_stride] words: floats, bf16 pairs, or integers
  float* scores;  // [n_rows, kScoreStride], then the probabilities
  float* o;       // [n_rows, o_stride]
  float* m;       // [kRows] each
  float* l;
  float* factor;
  float* sums;
  float* reference;  // what a panel's scores are held against
  // Many rows: keys and values that do not multiply as they lie are packed.
  bool packs_k;
  bool packs_v;
  float* packed;  // a group of columns of K or V; else the left sides of products with groups
  // For quantised K and V:
  float* q_sums;  // of a query's elements, for the minima of K
  float* minima;  // what the minima of V so far add to each element of o
  float* panel_minima;
  float* left_units;  // of packed probabilities
  float* q_units;     // of packed queries
  std::int64_t* position;
  std::int64_t first_position;  // of the queries
  std::int64_t last_position;
};

bool holds_groups(KvType type) { return type == KvType::kKivi4 || type == KvType::kKivi2; }

// Whether a product multiplies pairs of bf16 on both sides.
bool multiplies_pairs(const AttentionTask& task, KvType type) {
  return kHasBf16Pairs && task.multiplies_bf16_pairs &&
         (type == KvType::kBf16 || type == KvType::kFp8);
}

// Packing reads and writes every value once, which pays for many rows.
bool is_packed(const AttentionTask& task, std::int64_t n_rows, KvType type) {
  const bool is_ready =  // as it lies
      holds_codes(type) || (type == KvType::kBf16 && multiplies_pairs(task, type));
  return !is_ready && (task.rows_apart || n_rows >= kPackFromRows);
}

// Of the left sides of few rows' products with groups, one row of kMostCodes after the other: not a
// power of two, as the scores' is not.
constexpr std::int64_t kGroupLeftStride = kMostCodes + 16;

std::int64_t packed_floats(std::int64_t head_dim) {
  const std::int64_t columns = kPackedColumns * larger(head_dim, kPanelKeys);
  return larger(columns, (kPackFromRows - 1) * kGroupLeftStride);
}

// Words of queries from row to row: integers lie as far apart as those of the product with V.
std::int64_t q_stride(const AttentionTask& task) {
  return holds_codes(task.k_type) ? kScoreStride : task.head_dim;
}

// Floats that divide_scratch takes, at most.
std::int64_t tile_floats(std::int64_t head_dim) {
  const std::int64_t of_a_row =
      larger(head_dim, kScoreStride) + kScoreStride + round_up(head_dim, kDimUnit) + 12;
  return kRows * of_a_row + packed_floats(head_dim) + 16 * 15;
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
  tile.o_stride = round_up(task.head_dim, kDimUnit);
  tile.q = take(kRows * q_stride(task));
  tile.scores = take(kRows * kScoreStride);
  tile.o = take(kRows * tile.o_stride);
  tile.m = take(kRows);
  tile.l = take(kRows);
  tile.factor = take(kRows);
  tile.sums = take(kRows);
  tile.reference = take(kRows);
  tile.q_sums = take(kRows);
  tile.minima = take(kRows);
  tile.panel_minima = take(kRows);
  tile.left_units = take(kRows);
  tile.q_units = take(kRows);
  tile.packed = take(packed_floats(task.head_dim));
  tile.position = reinterpret_cast<std::int64_t*>(take(2 * kRows));
  tile.packs_k = is_packed(task, tile.n_rows, task.k_type);
  tile.packs_v = is_packed(task, tile.n_rows, task.v_type);
  tile.first_position = task.q_positions[0];
  tile.last_position = task.q_positions[task.n_tokens - 1];
  return tile;
}

void pack_bf16_pairs(const float* x, std::int64_t n, float* out) {
  auto* halves = reinterpret_cast<unsigned char*>(out);
  std::int64_t i = 0;
#if defined(__AVX512BF16__)
  for (; i + kWidth <= n; i += kWidth) store_as_bf16(halves + 2 * i, load(x + i));
#endif
  for (; i < n; ++i) {
    const std::uint16_t bits = to_bf16_bits(x[i]);
    __builtin_memcpy(halves + 2 * i, &bits, sizeof bits);
  }
}

// What the largest of these magnitudes takes for integers of 16 bits; its inverse.
struct LeftUnit {
  float unit;
  float inverse;
};
LONGHAUL_INLINE LeftUnit left_unit(float largest) {
  return {largest / kMostLeft, largest > 0.0F ? kMostLeft / largest : 0.0F};
}

const float* query_of(const AttentionTask& task, std::int64_t row) {
  return task.q + row / task.n_heads * task.q_token_stride +
         row % task.n_heads * task.q_head_stride;
}

// Everything but the queries.
void load_states(const AttentionTask& task, const Tile& tile) {
  const std::int64_t dim = task.head_dim;
  for (std::int64_t r = 0; r < kRows; ++r) {  // rows that do not exist are computed as empty ones
    tile.m[r] = -kInfinity;
    tile.l[r] = tile.sums[r] = tile.factor[r] = tile.minima[r] = tile.panel_minima[r] = 0.0F;
  }
  for (std::int64_t r = 0; r < tile.n_rows; ++r) {
    const std::int64_t token = r / task.n_heads;
    const std::int64_t head = r % task.n_heads;
    tile.position[r] = task.q_positions[token];
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

// One part of n_parts of these bytes, into the second cache: while rows meet some keys there is
// time to fetch what they will meet next, which hardware does not foresee where it lies apart.
LONGHAUL_INLINE void prefetch_part(const void* begin, std::int64_t n_bytes, std::int64_t part,
                                   std::int64_t n_parts) {
  const auto* p = static_cast<const char*>(begin);
  for (std::int64_t i = part * n_bytes / n_parts; i < (part + 1) * n_bytes / n_parts; i += 64) {
    __builtin_prefetch(p + i, /*rw=*/0, /*locality=*/2);
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
