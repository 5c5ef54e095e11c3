// Part of attention_mma.cuh: which keys come next, and their way into shared memory.
#pragma once
#include "kernels/cuda/attention.cuh"

namespace longhaul::cuda {
namespace {

// Keys of one block that a tile takes: the next kKeys slots, of which n_keys are tokens that may be
// seen. Lives in shared memory beside the tile.
struct TileInfo {
  std::int64_t first_position;
  std::int32_t n_keys;  // 0: there is no tile any more
  std::int32_t block;   // its number among the work's, where it is not in a table
};
static_assert(sizeof(TileInfo) == 16);

// Whether codes have minima beside their scales.
template <typename C>
constexpr bool kHasMinima = C::kCodes&& has_minimum(C::kType);

// The task of this thread block; without rows where there is none.
template <typename C>
__device__ __forceinline__ AttentionTask this_task(const AttentionWork& work) {
  if (!C::kDecode || work.tables == nullptr) return work.tasks[blockIdx.x];
  const std::int64_t range = blockIdx.x % work.n_ranges;
  AttentionTask task = work.tasks[blockIdx.x / work.n_ranges];
  if (range < task.first_block || range >= task.first_block + task.n_blocks) {
    task.n_rows = 0;
    return task;
  }
  const TableRef& table = work.tables[work.members[task.first_member].item];
  task.first_block = range == 0 ? 0 : end_of_range(table, range - 1, work.block_size);
  task.n_blocks = end_of_range(table, range, work.block_size) - task.first_block;
  task.partial_offset = range * C::kPartialRows * (C::kHeadDim + 2);
  return task;
}

// Walks over the tiles of a task; all threads walk alike.
struct Walk {
  std::int32_t item;  // whose table has the blocks by number, if there are tables
  std::int32_t next_block;
  std::int32_t end_block;
  std::int32_t slot = 0;
  std::int32_t end = 0;
  const std::byte* data = nullptr;
  std::int64_t first_position = 0;
};

// The queries of a tile: what decides which keys are needed.
struct Rows {
  std::int64_t first_position;
  std::int64_t last_position;
  std::int64_t sink;
  std::int64_t recent;
};

// Puts the walk on the next tile's block and slot. False at the end.
template <typename C>
__device__ __forceinline__ bool advance(const AttentionWork& work, const Rows& rows, Walk& walk) {
  while (walk.slot >= walk.end) {
    if (walk.next_block == walk.end_block) return false;
    const bool by_number = C::kDecode && work.tables != nullptr;
    const KvBlockRef block = by_number
                                 ? work.tables[walk.item].block(walk.next_block, work.block_size)
                                 : work.blocks[walk.next_block];
    ++walk.next_block;
    const Slots slots =
        visible_slots(block, rows.first_position, rows.last_position, rows.sink, rows.recent);
    walk.data = block.data;
    walk.first_position = block.first_position;
    walk.slot = static_cast<std::int32_t>(slots.begin / C::kSlots * C::kSlots);
    walk.end = static_cast<std::int32_t>(slots.end);
  }
  return true;
}

// Queues copies of n_rows rows of words; words [0, n_words) of each exist, the others become zero.
__device__ __forceinline__ void copy_rows(std::uint32_t* to, int to_stride,
                                          const std::uint32_t* from, std::int64_t from_stride,
                                          int n_rows, int width, int n_words, int n_threads) {
  const int chunks = width / 4;
  for (int i = static_cast<int>(threadIdx.x); i < n_rows * chunks; i += n_threads) {
    const int row = i / chunks;
    const int word = i % chunks * 4;
    const bool exists = word < n_words;
    copy_async_16(to + row * to_stride + word, exists ? from + row * from_stride + word : from,
                  exists);
  }
}

// Queues the copies of scales and minima of groups: of K for each group of tokens and dim, of V for
// each group of dims and token.
template <typename C>
__device__ __forceinline__ void load_group_ranges(const AttentionWork& work, const Walk& walk,
                                                  int n_slots, std::uint32_t* to) {
  constexpr int kGroup = static_cast<int>(kKvGroup);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const auto* k = reinterpret_cast<const std::uint32_t*>(
        walk.data + (i == 0 ? work.k.scales_at : work.k.minima_at));
    copy_rows(to + i * C::kRangeWords, 0, k + walk.slot / kGroup * (C::kHeadDim / 2), 0, 1,
              C::kRangeWords, n_slots / kGroup * (C::kHeadDim / 2), C::kThreads);
    const auto* v = reinterpret_cast<const std::uint32_t*>(
        walk.data + (i == 0 ? work.v.scales_at : work.v.minima_at));
    copy_rows(to + (2 + i) * C::kRangeWords, C::kKeys / 2, v + walk.slot / 2, work.block_size / 2,
              C::kDimGroups, C::kKeys / 2, n_slots / 2, C::kThreads);
  }
}

// Queues the copies of the walk's next tile into a stage, or marks the end there.
template <typename C>
__device__ __forceinline__ void load_tile(const AttentionWork& work, const Rows& rows, Walk& walk,
                                          std::uint32_t* stage) {
  TileInfo info = {0, 0, 0};
  if (advance<C>(work, rows, walk)) {
    const std::int32_t left = walk.end - walk.slot;
    info.first_position = walk.first_position + walk.slot;
    info.n_keys = left < C::kKeys ? left : C::kKeys;
    if constexpr (C::kTellsHeads) info.block = walk.next_block - 1;
    // Whole units of slots: the block has them, and those without a token are zero.
    const int n_slots = (info.n_keys + C::kSlots - 1) / C::kSlots * C::kSlots;
    const auto* k = reinterpret_cast<const std::uint32_t*>(walk.data + work.k.at);
    copy_rows(stage, C::kKStride, k + walk.slot, work.block_size, C::kKRows, C::kKeys, n_slots,
              C::kThreads);
    const auto* v = reinterpret_cast<const std::uint32_t*>(walk.data + work.v.at);
    const int n_v_rows = n_slots / C::kLanes;
    copy_rows(stage + C::kVAt, C::kVStride, v + walk.slot / C::kLanes * C::kHeadDim, C::kHeadDim,
              n_v_rows, C::kHeadDim, C::kHeadDim, C::kThreads);
    copy_rows(stage + C::kVAt + n_v_rows * C::kVStride, C::kVStride, v, 0, C::kVRows - n_v_rows,
              C::kHeadDim, 0, C::kThreads);
    if constexpr (C::kGroups) load_group_ranges<C>(work, walk, n_slots, stage + C::kRangesAt);
    if constexpr (C::kTokenCodes) {
      const std::int64_t ranges[] = {work.k.scales_at, work.k.minima_at, work.v.scales_at,
                                     work.v.minima_at};
#pragma unroll
      for (int i = 0; i < 4; i += kHasMinima<C> ? 1 : 2) {
        const auto* from = reinterpret_cast<const std::uint32_t*>(walk.data + ranges[i]);
        copy_rows(stage + C::kRangesAt + i * C::kRangeWords, 0, from + walk.slot / 2, 0, 1,
                  C::kRangeWords, n_slots / 2, C::kThreads);
      }
    }
    walk.slot += C::kKeys;
  }
  if (threadIdx.x == 0) *reinterpret_cast<TileInfo*>(stage + C::kInfoAt) = info;
  commit_copies();
}

}  // namespace
}  // namespace longhaul::cuda
