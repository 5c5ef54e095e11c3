// The work of attention as its kernels read it, and the mask. Needs no CUDA.
#pragma once
#include <cstdint>

#include "base/device/gpu_memory.h"
#include "kernels/cuda/kv_words.cuh"
#include "kernels/cuda/state_ref.h"
#include "kernels/kv_block.h"

namespace longhaul::cuda {

static_assert(sizeof(KvBlockRef) == kBlockRefBytes);

// The queries of one (sequence, KV head). Its rows are q_len tokens x gqa_group heads: row r is
// head r % gqa_group of token r / gqa_group, so that all heads that read the same keys share a
// tile.
struct AttentionItemRef {
  const float* q;  // [q_len, gqa_group, head_dim]
  std::int64_t q_token_stride;
  std::int64_t q_head_stride;
  std::int64_t gqa_group;
  std::int64_t n_rows;
  std::int64_t positions_at;  // of [q_len] in AttentionWork::positions
  std::int64_t sink;
  std::int64_t recent;
  StateRef state;
};
static_assert(sizeof(AttentionItemRef) == kAttentionItemBytes);

// One item of a tile, and where the partial state of its rows goes, in floats: o [kPartialRows or
// rows of the tile, head_dim], m and l of as many rows. -1: it is merged into the item's state.
struct AttentionMember {
  std::int64_t partial_at;
  std::int64_t item;
};
static_assert(sizeof(AttentionMember) == kAttentionMemberBytes);

// A tile of rows against some blocks: one thread block's work. Row r is row first_row + r %
// member_rows of member r / member_rows: the rows of one item, or of several that have these blocks
// in common, all of which all of their rows see.
struct AttentionTask {
  std::int32_t first_member;
  std::int32_t member_rows;
  std::int32_t first_row;
  std::int32_t n_rows;  // of all members
  std::int64_t first_block;
  std::int64_t n_blocks;
  std::int64_t partial_offset = 0;  // of its members' partial states: those of its range
};
static_assert(sizeof(AttentionTask) == kAttentionTaskBytes);

// The blocks of an item by number (kernels/block_table.h) that its rows may see: in this order,
// those of numbers [0, n_sink) and, n_hidden behind them, the others.
struct TableRef {
  const std::byte* const* shared;
  const std::byte* const* own;
  std::int64_t n_shared;
  std::int64_t first_position;
  std::int64_t n_slots;  // of all blocks: only the last one may not be full
  std::int64_t n_sink;
  std::int64_t n_hidden;
  std::int64_t n_blocks;    // that its rows may see
  std::int64_t range_keys;  // that a range has, rounded up to whole blocks
  std::int64_t n_ranges;

  LONGHAUL_HOST_DEVICE KvBlockRef block(std::int64_t i, std::int64_t block_size) const {
    const std::int64_t number = i < n_sink ? i : i + n_hidden;
    const std::int64_t left = n_slots - number * block_size;
    KvBlockRef out;
    out.data = number < n_shared ? shared[number] : own[number - n_shared];
    out.first_position = first_position + number * block_size;
    out.n_tokens = left < block_size ? left : block_size;
    return out;
  }
};
// Behind the last block of a range, of those that the item's rows may see.
LONGHAUL_HOST_DEVICE constexpr std::int64_t end_of_range(const TableRef& table, std::int64_t range,
                                                         std::int64_t block_size) {
  if (range + 1 >= table.n_ranges) return table.n_blocks;
  const std::int64_t end = ((range + 1) * table.range_keys + block_size - 1) / block_size;
  return end > range + 1 ? end : range + 1;
}

// Ranges of blocks of one item's tile, whose partial states follow each other.
struct AttentionSplit {
  std::int32_t item;
  std::int32_t first_row;
  std::int32_t n_rows;
  std::int32_t n_ranges;
  std::int64_t partial_at;
};
static_assert(sizeof(AttentionSplit) == kAttentionSplitBytes);
constexpr int kMostRanges = kMostKeyRanges;

struct AttentionWork {
  const AttentionItemRef* items = nullptr;
  // Null, or of each item: then tasks say ranges where others say blocks, and n_ranges thread
  // blocks take one, each a range.
  const TableRef* tables = nullptr;
  std::int64_t n_ranges = 1;
  const AttentionTask* tasks = nullptr;
  const AttentionMember* members = nullptr;
  const std::int64_t* positions = nullptr;
  const KvBlockRef* blocks = nullptr;
  float* partials = nullptr;
  std::int64_t n_tasks = 0;
  std::int64_t most_rows = 0;  // that a task of decode has
  bool tells_heads = false;    // some of the blocks have slots that not all heads see
  std::int64_t block_size;
  std::int64_t head_dim;
  PartRef k;
  PartRef v;
  float sm_scale;
  float log2_scale;  // sm_scale log2(e); kernels with no register for it read it where it is used
  bool operator==(const AttentionWork&) const = default;
};

LONGHAUL_HOST_DEVICE constexpr bool is_visible(std::int64_t key, std::int64_t query,
                                               std::int64_t sink, std::int64_t recent) {
  return key <= query && (key < sink || query - key < recent);
}

// Slots [begin, end) outside of which queries from `first` to `last` see nothing of the block.
struct Slots {
  std::int64_t begin;
  std::int64_t end;
};
LONGHAUL_HOST_DEVICE constexpr Slots visible_slots(const KvBlockRef& block, std::int64_t first,
                                                   std::int64_t last, std::int64_t sink,
                                                   std::int64_t recent) {
  const std::int64_t after = last - block.first_position + 1;
  const std::int64_t end = block.n_tokens < after ? block.n_tokens : after;
  std::int64_t begin = 0;
  if (block.first_position >= sink) {  // else the block's first slot is a sink
    const std::int64_t oldest = first - recent + 1 - block.first_position;
    begin = oldest > 0 ? oldest : 0;
  }
  return begin < end ? Slots{begin, end} : Slots{0, 0};
}

// What a thread block takes. Decode is for items of up to 16 rows; where several share blocks, wide
// decode has as many tiles of 16 rows beside each other.
enum class AttentionPath { kSimt, kDecode, kWideDecode, kPrefill };
constexpr AttentionPath kAttentionPaths[] = {AttentionPath::kSimt, AttentionPath::kDecode,
                                             AttentionPath::kWideDecode, AttentionPath::kPrefill};
constexpr int kSimtRows = kRowsOfPlainTile;
constexpr int kDecodeRows = kRowsOfRange;
constexpr int kWideDecodeRows = 32;
LONGHAUL_HOST_DEVICE constexpr int rows_of_tile(AttentionPath path) {
  switch (path) {
    case AttentionPath::kSimt:
      return kSimtRows;
    case AttentionPath::kDecode:
      return kDecodeRows;
    case AttentionPath::kWideDecode:
      return kWideDecodeRows;
    case AttentionPath::kPrefill:
      return 64;
  }
  return 0;
}
// Rows that a partial state has room for: those of an item in a tile.
LONGHAUL_HOST_DEVICE constexpr int partial_rows(AttentionPath path) {
  return path == AttentionPath::kWideDecode ? kDecodeRows : rows_of_tile(path);
}

}  // namespace longhaul::cuda
