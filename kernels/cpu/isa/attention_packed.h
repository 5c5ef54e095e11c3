// The two matrix products of attention for many rows. Groups of a panel's keys, and then of its
// values' dims, are widened to floats and packed one after the other into the same 16 KiB, which
// stay in the first cache; every group then meets all rows (kernels/cpu/isa/packed_tile.h). See
// kernels/cpu/isa/attention.cc.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_e4m3.h"
#include "kernels/cpu/isa/attention_groups.h"
#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/packed_tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// A vector of words -> the vectors of one step (floats), or of two (pairs of bf16).
template <KvType kType>
LONGHAUL_INLINE float* pack_vector(Vec words, float* out) {
  if constexpr (kType == KvType::kBf16) {
    store(out, low_halves(reinterpret_cast<Words>(words)));
    store(out + kPackedColumns, high_halves(reinterpret_cast<Words>(words)));
    return out + 2 * kPackedColumns;
  } else {
    store(out, words);
    return out + kPackedColumns;
  }
}

// The next kPackedColumns keys of a panel; beyond its last one zeros. Moves `run` and `slot` on.
template <KvType kType>
void pack_keys(const AttentionTask& task, const Panel& panel, std::int64_t& run, std::int64_t& slot,
               float* packed) {
  const std::int64_t n_words = task.head_dim / (kType == KvType::kBf16 ? 2 : 1);
  for (int v = 0; v < kPackedVectors; ++v) {
    float* out = packed + v * kWidth;
    if (run == panel.n_runs) {
      for (std::int64_t d = 0; d < task.head_dim; ++d) store(out + d * kPackedColumns, Vec{});
      continue;
    }
    if constexpr (kBitsInGroups < kType >> 0) {
      unpack_key_groups<kBitsInGroups<kType>>(task, panel.runs[run], slot, kPackedColumns, out);
    } else if constexpr (kType == KvType::kFp8) {
      widen_e4m3_keys(task, panel.runs[run], slot, kPackedColumns, out);
    } else {
      const float* words = panel.runs[run].k + slot;
      for (std::int64_t i = 0; i < n_words; ++i, words += task.block_size) {
        out = pack_vector<kType>(load(words), out);
      }
    }
    slot += kWidth;
    if (slot == panel.runs[run].n_keys) ++run, slot = 0;
  }
}

// Dims [dim, dim + kPackedColumns) of all values of a panel; beyond the last dim zeros.
template <KvType kType>
void pack_values(const AttentionTask& task, const Panel& panel, std::int64_t dim, float* packed) {
  for (int v = 0; v < kPackedVectors; ++v, dim += kWidth) {
    float* out = packed + v * kWidth;
    const std::int64_t n_left = task.head_dim - dim;
    for (std::int64_t i = 0; i < panel.n_runs; ++i) {
      const Run& run = panel.runs[i];
      if constexpr (kBitsInGroups < kType >> 0) {
        out = unpack_value_groups<kBitsInGroups<kType>>(task, run, dim, kPackedColumns, out);
        continue;
      }
      if constexpr (kType == KvType::kFp8) {
        out = widen_e4m3_values(task, run, dim, kPackedColumns, out);
        continue;
      }
      const std::int64_t n_words = run.n_keys / (kType == KvType::kBf16 ? 2 : 1);
      const float* words = run.v + dim;
      for (std::int64_t row = 0; row < n_words; ++row, words += task.head_dim) {
        const Vec x = n_left >= kWidth ? load(words)
                      : n_left > 0     ? load_first(words, n_left)
                                       : Vec{};
        out = pack_vector<kType>(x, out);
      }
    }
  }
}

void prefetch_values(const AttentionTask& task, const Panel& panel, std::int64_t part,
                     std::int64_t n_parts) {
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    const Run& run = panel.runs[i];
    const std::int64_t n_words = run.n_keys / task.v_lanes * task.head_dim;
    prefetch_part(run.v, n_words * std::int64_t{sizeof(float)}, part, n_parts);
  }
}

// Of as many blocks as the next panel may take.
constexpr std::int64_t kMostPrefetchedBytes = std::int64_t{1} << 16;
void prefetch_next_keys(const AttentionTask& task, const Panel& panel, std::int64_t part,
                        std::int64_t n_parts) {
  const std::int64_t n_blocks = larger(1, kPanelKeys / task.block_size);
  const std::int64_t end = smaller(task.n_blocks, panel.next_block + n_blocks);
  const std::int64_t n_bytes =
      smaller(static_cast<std::int64_t>(task.v_at), kMostPrefetchedBytes);  // of large blocks
  for (std::int64_t b = panel.next_block; b < end; ++b) {
    prefetch_part(task.blocks[b].data, n_bytes, part, n_parts);
  }
}

template <KvType kType>
void compute_packed_scores(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  PackedProduct product = {.a = tile.q,
                           .a_stride = task.head_dim,
                           .b = tile.packed,
                           .n_steps = task.head_dim,
                           .c = tile.scores,
                           .c_stride = kScoreStride,
                           .row_scale = nullptr};
  std::int64_t run = 0;
  std::int64_t slot = 0;
  for (std::int64_t key = 0; key < panel.n_keys; key += kPackedColumns) {
    pack_keys<kType>(task, panel, run, slot, tile.packed);
    prefetch_values(task, panel, key / kPackedColumns,
                    round_up(panel.n_keys, kPackedColumns) / kPackedColumns);
    multiply_packed<Start::kZero>(tile.n_rows, product);
    product.c += kPackedColumns;
  }
}

template <KvType kType>
void add_packed_values(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  PackedProduct product = {.a = tile.scores,
                           .a_stride = kScoreStride,
                           .b = tile.packed,
                           .n_steps = panel.n_keys,
                           .c = tile.o,
                           .c_stride = tile.o_stride,
                           .row_scale = tile.factor};
  for (std::int64_t dim = 0; dim < task.head_dim; dim += kPackedColumns) {
    pack_values<kType>(task, panel, dim, tile.packed);
    prefetch_next_keys(task, panel, dim / kPackedColumns,
                       round_up(task.head_dim, kPackedColumns) / kPackedColumns);
    multiply_packed<Start::kScale>(tile.n_rows, product);
    product.c += kPackedColumns;
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
