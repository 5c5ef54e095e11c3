// Part of attention_decode.cuh: which keys come next, and their way into registers.
#pragma once
#include "kernels/cuda/attention_mma_load.cuh"
#include "kernels/cuda/reduce.cuh"

namespace longhaul::cuda {
namespace {

constexpr int kDecodeUnit = 32;  // keys that a warp takes at once, of one block

// What a warp knows of a block, in shared memory.
struct alignas(16) BlockFacts {
  const std::byte* data;
  std::int32_t slot_of_unit_0;  // where unit 0 would lie, if it were this block's
  std::int32_t end_and_whole;   // 2 x the slot where what is seen ends, + 1 if all rows see all
};
// Of a block, for units that are not whole, or where heads see different slots.
struct BlockDetails {
  std::int64_t first_position;
  const SeenBy* seen_by;  // of its slots, or null
};

// Keys of a block from slot `slot` on. data null: there is no unit any more.
struct Unit {
  const std::byte* data;
  std::int32_t slot;   // a multiple of kDecodeUnit
  std::int32_t entry;  // of what is known of the block
  bool is_whole;       // kDecodeUnit keys, which all rows see
};

// A warp's way through the units of a task, of which it takes every kKeyWarps-th. Each lane looks
// at a block of its own, so that 32 of them are looked at in the time of one; they are remembered
// until 32 others have been.
template <typename C>
class UnitWalk {
 public:
  static constexpr int kEntries = 2 * kWarp;
  struct Shared {  // of a warp
    BlockFacts facts[kEntries];
    BlockDetails details[kEntries];
  };

  // `rows` stays where it is.
  __device__ __forceinline__ UnitWalk(const AttentionWork& work, const AttentionTask& task,
                                      const Rows& rows, int key_warp, Shared& shared)
      : work_(work),
        rows_(rows),
        shared_(shared),
        item_(static_cast<std::int32_t>(work.members[task.first_member].item)),
        next_block_(static_cast<std::int32_t>(task.first_block)),
        end_block_(static_cast<std::int32_t>(task.first_block + task.n_blocks)),
        number_(key_warp - C::kKeyWarps) {}

  __device__ __forceinline__ Unit next() {
    number_ += C::kKeyWarps;
    while (number_ >= n_units_) {
      if (next_block_ >= end_block_) return {nullptr, 0, 0, false};
      number_ -= n_units_;
      look_at_blocks();
    }
    Unit out;
    out.entry = first_entry_ + count_lanes(units_end_ <= number_);
    const BlockFacts facts = shared_.facts[out.entry];
    out.data = facts.data;
    out.slot = facts.slot_of_unit_0 + number_ * kDecodeUnit;
    out.is_whole =
        facts.end_and_whole % 2 != 0 && facts.end_and_whole / 2 - out.slot >= kDecodeUnit;
    return out;
  }

  // The unit's keys, and of which block they are.
  __device__ __forceinline__ TileInfo info(const Unit& unit) const {
    const std::int32_t left = shared_.facts[unit.entry].end_and_whole / 2 - unit.slot;
    return {.first_position = shared_.details[unit.entry].first_position + unit.slot,
            .n_keys = left < kDecodeUnit ? left : kDecodeUnit,
            .block = 0};
  }
  __device__ __forceinline__ const SeenBy* seen_by(const Unit& unit) const {
    return shared_.details[unit.entry].seen_by;
  }

 private:
  __device__ __forceinline__ void look_at_blocks() {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const std::int32_t number = next_block_ + lane;
    next_block_ += kWarp;
    first_entry_ = kWarp - first_entry_;
    KvBlockRef block;
    Slots slots = {0, 0};
    if (number < end_block_) {
      block = work_.tables != nullptr ? work_.tables[item_].block(number, work_.block_size)
                                      : work_.blocks[number];
      slots =
          visible_slots(block, rows_.first_position, rows_.last_position, rows_.sink, rows_.recent);
    }
    const auto begin = static_cast<std::int32_t>(slots.begin / kDecodeUnit * kDecodeUnit);
    const auto end = static_cast<std::int32_t>(slots.end);
    const std::int32_t n_units = (end - begin + kDecodeUnit - 1) / kDecodeUnit;
    const std::int64_t oldest = block.first_position + begin;
    const std::int64_t newest = block.first_position + end - 1;
    const bool is_whole = newest <= rows_.first_position &&
                          (newest < rows_.sink || rows_.last_position - oldest < rows_.recent);
    units_end_ = n_units;
#pragma unroll 1
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const std::int32_t before = shuffle_from(units_end_, lane - distance);
      if (lane >= distance) units_end_ += before;
    }
    n_units_ = shuffle_from(units_end_, kWarp - 1);
    shared_.facts[first_entry_ + lane] = {block.data, begin - (units_end_ - n_units) * kDecodeUnit,
                                          end * 2 + (is_whole ? 1 : 0)};
    shared_.details[first_entry_ + lane] = {block.first_position, block.seen_by};
    sync_warp();  // what lanes wrote of their blocks comes before others read it
  }

  const AttentionWork& work_;
  const Rows& rows_;
  Shared& shared_;
  std::int32_t item_;  // whose table has the blocks by number, if there are tables
  std::int32_t next_block_;
  std::int32_t end_block_;
  std::int32_t number_;       // of the next unit, among those of the blocks last looked at
  std::int32_t n_units_ = 0;  // of these
  std::int32_t first_entry_ = kWarp;
  std::int32_t units_end_ = 0;  // units of this lane's block and of those before it
};

constexpr int kWalkBytesOfWarp = 2 * kWarp * (sizeof(BlockFacts) + sizeof(BlockDetails));

// Scales and minima of a thread's four keys, pairs of f16.
struct KeyRanges {
  Words2 k_scales;
  Words2 k_minima;
  Words2 v_scales;
  Words2 v_minima;
};

// Where a lane's words of a unit lie in the block. Of keys, lane 4g + t has keys 4g to 4g + 3 of
// the unit and, along the sum, what attention_tile.cuh says of t; of values, dims 4g to 4g + 3 of
// 32 and keys 8t to 8t + 7. Where the block has no such slots these are others of its slots, whose
// weights are zero.
struct UnitPlace {
  const std::byte* data;
  std::int32_t key;        // the first of the lane's keys, as a slot
  std::int32_t value_key;  // of its eight keys of values
};
__device__ __forceinline__ UnitPlace place_of(const AttentionWork& work, const Unit& unit, int g,
                                              int t) {
  const std::int32_t last = static_cast<std::int32_t>(work.block_size) - unit.slot;
  const std::int32_t key = 4 * g < last ? 4 * g : last - 4;
  const std::int32_t value_key = 8 * t < last ? 8 * t : last - 8;
  return {unit.data, unit.slot + key, unit.slot + value_key};
}

// Forks share tiles: there the other warps' rows need the same words, soon.
template <typename C>
__device__ __forceinline__ Words4 load_words(const std::byte* at) {
  if constexpr (C::kRowWarps > 1) return load_shared_16(at);
  return load_once_16(at);
}

// The words of chunk `chunk` of keys: rows t, t + 4, ... of words.
template <typename C>
__device__ __forceinline__ void load_keys(const AttentionWork& work, const UnitPlace& place, int t,
                                          int chunk, Words4 (&to)[C::kChunkLoads]) {
  const auto block_size = static_cast<std::int32_t>(work.block_size);
  const std::int32_t row = t + 4 * chunk * C::kChunkLoads;
  const std::byte* at =
      place.data + work.k.at + static_cast<std::uint32_t>((row * block_size + place.key) * 4);
#pragma unroll
  for (int i = 0; i < C::kChunkLoads; ++i) {
    to[i] = load_words<C>(at);
    at += static_cast<std::uint32_t>(block_size * 16);
  }
}

// The words of chunk `chunk` of values: for each 32 dims, the rows of words that hold eight keys.
template <typename C>
__device__ __forceinline__ void load_values(const AttentionWork& work, const UnitPlace& place,
                                            int g, int chunk, Words4 (&to)[C::kChunkLoads]) {
  const std::int32_t row = place.value_key / C::kLanes;
  const std::byte* at =
      place.data + work.v.at +
      static_cast<std::uint32_t>((row * C::kHeadDim + 16 * chunk * C::kChunkSteps + 4 * g) * 4);
#pragma unroll
  for (int i = 0; i < C::kChunkLoads; ++i) {
    const int dims = i / C::kValueRows * 32;
    to[i] = load_words<C>(at + (i % C::kValueRows * C::kHeadDim + dims) * 4);
  }
}

template <typename C>
__device__ __forceinline__ void load_ranges(const AttentionWork& work, const UnitPlace& place,
                                            KeyRanges& to) {
  const std::byte* at = place.data + static_cast<std::uint32_t>(place.key * 2);
  to.k_scales = load_once_8(at + work.k.scales_at);
  to.k_minima = load_once_8(at + work.k.minima_at);
  to.v_scales = load_once_8(at + work.v.scales_at);
  to.v_minima = load_once_8(at + work.v.minima_at);
}

}  // namespace
}  // namespace longhaul::cuda
