// What the attention kernels share: the work as kernels read it, and the mask.
#pragma once
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_words.cuh"
#include "kernels/cuda/softmax_state.cuh"

namespace longhaul::cuda {

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
  std::int64_t blocks_at;     // in AttentionWork::blocks
  std::int64_t sink;
  std::int64_t recent;
  StateRef state;
};

// A tile of rows against some of the item's blocks: one thread block's work.
struct AttentionTask {
  std::int32_t item;
  std::int32_t first_row;
  std::int32_t n_rows;
  std::int32_t first_block;
  std::int32_t end_block;
  // Where its partial state goes, in floats: o [tile rows, head_dim], m [tile rows], l [tile rows].
  // -1: it is merged into the item's state.
  std::int64_t partial_at;
};

// Ranges of blocks of one tile, whose partial states follow each other.
struct AttentionSplit {
  std::int32_t item;
  std::int32_t first_row;
  std::int32_t n_rows;
  std::int32_t n_ranges;
  std::int64_t partial_at;
};
constexpr int kMostRanges = 64;

struct AttentionWork {
  const AttentionItemRef* items;
  const AttentionTask* tasks;
  const std::int64_t* positions;
  const KvBlockRef* blocks;
  float* partials;
  std::int64_t n_tasks;
  std::int64_t block_size;
  std::int64_t head_dim;
  PartRef k;
  PartRef v;
  float sm_scale;
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

// The tasks of one path; `rows` of a tile.
void attention_simt(Stream& stream, const AttentionWork& work);
constexpr int kSimtRows = 4;

// For q_len gqa_group rows at most (decode) or for more (prefill): tensor cores.
enum class TilePurpose { kDecode, kPrefill };
constexpr int tile_rows(TilePurpose purpose) { return purpose == TilePurpose::kDecode ? 16 : 64; }
// Whether there is a kernel for such blocks on a chip whose thread blocks can have so much memory.
bool has_mma_kernel(const KvBlockShape& shape, std::size_t shared_bytes);
void attention_mma_bf16(Stream& stream, TilePurpose purpose, const AttentionWork& work);
void attention_mma_int8(Stream& stream, TilePurpose purpose, const AttentionWork& work);
void attention_mma_int4(Stream& stream, TilePurpose purpose, const AttentionWork& work);

}  // namespace longhaul::cuda
