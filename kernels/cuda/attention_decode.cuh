// Decode attention on bf16 tensor cores (compute capability 8.0 and up) over paged blocks of bf16,
// int8 or int4 with head_dim 64 or 128, giving partial states; made to issue few instructions, of
// which codes take more than memory leaves time for.
//
// Four warps take every fourth unit of 32 keys each, and merge at the end; in wide decode eight, of
// which two by two take the same units for rows of their own. There is no shared memory on the way:
// blocks are laid out such that a lane's 16 bytes of keys, or of values, are what it needs of a
// product's left side, so words go from memory to registers, a chunk while another is multiplied.
// Keys and values are the left side (16 of them a product) and queries and weights the right one
// (8 rows), so that four rows are not multiplied as 16, and a row's outputs and its sums are in the
// same threads:
//
//   scores^T [keys, rows] = K [keys, dims] q^T         8 rows: 2 products for 32 keys and 16 dims
//   outputs^T [dims, rows] += V^T [dims, keys] weights^T
//
// Codes are multiplied as they are; scales and minima are applied to scores and weights. Queries
// are rounded to bf16, and weights before they are summed with values; sums are float32.
// The reference of a row's exponentials changes only when weights would grow too large
// (kMostExcess), so that outputs are seldom scaled.
//
// A row's operations do not depend on the rows beside it, nor on how many there are.
#pragma once
#include "kernels/cuda/attention_decode_compute.cuh"
#include "kernels/cuda/attention_decode_units.cuh"
#include "kernels/cuda/attention_mma_store.cuh"

namespace longhaul::cuda {
namespace {

// What the warps of the same rows keep of them, which one of them writes.
template <int kRows>
struct SharedRows {
  Rows rows;
  std::int64_t positions[kRows];
  std::uint32_t heads[kRows];
};

// Row groups: of 8 rows each, of a warp. kTells: knows slots that only some query heads see.
template <KvType kCacheType, int kDim, int kGroupsOfRows, int kWarpsOfRows, bool kTells>
struct DecodeConfig {
  static constexpr KvType kType = kCacheType;
  static constexpr int kHeadDim = kDim;
  static constexpr bool kCodes = holds_codes(kType);
  static constexpr bool kTellsHeads = kTells;
  static constexpr bool kDecode = true;
  static constexpr int kRowGroups = kGroupsOfRows;
  static constexpr int kTileRows = 8 * kRowGroups;  // of a warp
  static constexpr int kPartialRows = kDecodeRows;
  static constexpr int kRowWarps = kWarpsOfRows;
  static constexpr int kKeyWarps = 4;
  static constexpr int kThreads = kRowWarps * kKeyWarps * kWarp;
  // Thread blocks that a multiprocessor must have registers for.
  static constexpr int kMinBlocks = kRowWarps > 1                              ? 1
                                    : kRowGroups > 1 || kType == KvType::kBf16 ? 2
                                                                               : 3;

  static constexpr int kLanes = lanes_of(kType);
  static constexpr int kSteps = kHeadDim / 16;  // products along dims
  // Words that a lane reads at once, 16 bytes a load, of keys or of values: so many dims.
  static constexpr int kChunkSteps = kType == KvType::kInt4 && kHeadDim > 64  ? 8
                                     : kType == KvType::kInt8&& kRowWarps > 1 ? 2  // registers
                                                                              : 4;
  static constexpr int kChunks = kSteps / kChunkSteps;
  static constexpr int kChunkLoads = 2 * kChunkSteps / kLanes * 2;
  static constexpr int kValueRows = 8 / kLanes;  // rows of words that hold eight keys' values

  static constexpr int kKeys = kDecodeUnit;

  // Shared memory, in bytes: what warps know of blocks, and after that the merge at the end; of
  // each row warp what is kept of its rows.
  static constexpr int kStateBytes = 4 * words_of_states(kKeyWarps, kTileRows, kHeadDim);
  static constexpr int kWalkBytes = kThreads / kWarp * kWalkBytesOfWarp;
  static constexpr int kFactsAt = kStateBytes > kWalkBytes ? kStateBytes : kWalkBytes;
  static_assert(kFactsAt % 16 == 0);
  static_assert(kChunks * kChunkSteps == kSteps);
};

// Chunks of a unit come in this order: of keys, then of values; chunk n is in buffer n % 2, and is
// replaced by chunk n + 2, which may be of the next unit.
template <typename C>
struct Chunks {
  Words4 words[2][C::kChunkLoads];

  __device__ __forceinline__ void load(const AttentionWork& work, const DecodeThread<C>& thread,
                                       const UnitPlace& place, int number) {
    if (number < C::kChunks) {
      load_keys<C>(work, place, thread.t, number, words[number % 2]);
    } else {
      load_values<C>(work, place, thread.g, number - C::kChunks, words[number % 2]);
    }
  }
};

template <typename C>
__device__ __forceinline__ void attend_units(const AttentionWork& work, UnitWalk<C>& walk,
                                             const Rows& rows, const RowFacts& facts,
                                             DecodeThread<C>& thread) {
  Unit unit = walk.next();
  if (unit.data == nullptr) return;
  UnitPlace place = place_of(work, unit, thread.g, thread.t);
  Chunks<C> chunks;
  KeyRanges ranges;
  chunks.load(work, thread, place, 0);
  if constexpr (C::kCodes) load_ranges<C>(work, place, ranges);
  chunks.load(work, thread, place, 1);
  for (;;) {
    const Unit next = walk.next();
    const UnitPlace next_place = place_of(work, next, thread.g, thread.t);
    const auto replace = [&](int number) {
      if (number + 2 < 2 * C::kChunks) {
        chunks.load(work, thread, place, number + 2);
      } else if (next.data != nullptr) {
        chunks.load(work, thread, next_place, number + 2 - 2 * C::kChunks);
      }
    };
    float scores[C::kRowGroups][2][4] = {};
#pragma unroll
    for (int chunk = 0; chunk < C::kChunks; ++chunk) {
      add_scores<C>(thread, chunk, chunks.words[chunk % 2], scores);
      replace(chunk);
    }
    if constexpr (C::kCodes) scale_scores<C>(thread, ranges, scores);
    if (!unit.is_whole) mask_scores<C>(thread, walk.info(unit), rows, facts, scores);
    if constexpr (C::kTellsHeads) {
      const SeenBy* seen_by = walk.seen_by(unit);
      if (seen_by != nullptr)
        hide_from_heads<C>(thread, walk.info(unit), seen_by + unit.slot, facts, scores);
    }
    weigh<C>(work.log2_scale, ranges, thread, scores);
    if constexpr (C::kCodes) {
      if (next.data != nullptr) load_ranges<C>(work, next_place, ranges);
    }
    std::uint32_t right[C::kRowGroups][2][2];
#pragma unroll
    for (int group = 0; group < C::kRowGroups; ++group)
      turn_weights<C>(scores[group], right[group]);
#pragma unroll
    for (int chunk = 0; chunk < C::kChunks; ++chunk) {
      add_outputs<C>(right, chunk, chunks.words[(C::kChunks + chunk) % 2], thread);
      replace(C::kChunks + chunk);
    }
    if (next.data == nullptr) return;
    unit = next;
    place = next_place;
  }
}

// Sums over the eight threads that share a row; writes a warp's rows to be merged.
template <typename C>
__device__ __forceinline__ void put_decode_rows(const DecodeThread<C>& thread,
                                                const WarpStates<C>& to) {
  const int first = static_cast<int>(threadIdx.x) / kWarp % C::kKeyWarps * C::kTileRows;
#pragma unroll
  for (int i = 0; i < 2 * C::kRowGroups; ++i) {
    const int group = i / 2;
    const int e = i % 2;
    float l = thread.l[group][e];
    float minimum = thread.minimum[group][e];
#pragma unroll
    for (int mask = 4; mask < kWarp; mask *= 2) {
      l += shuffle_xor(l, mask);
      if constexpr (C::kCodes) minimum += shuffle_xor(minimum, mask);
    }
    const int row = first + 8 * group + 2 * thread.t + e;
#pragma unroll
    for (int tile = 0; tile < C::kSteps; ++tile) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        to.o[row * C::kHeadDim + dim_of_output(tile, thread.g, h)] =
            thread.o[group][tile][2 * h + e] + (C::kCodes ? minimum : 0.0F);
      }
    }
    const bool is_empty = thread.limit[group][e] == minus_infinity();
    constexpr float kLog2 = 0.69314718055994531F;  // of e, of what were exponents of 2
    if (thread.g == 0) to.m[row] = is_empty ? minus_infinity() : thread.reference[group][e] * kLog2;
    if (thread.g == 1) to.l[row] = l;
  }
}

// grid.x is the task, or one of its ranges (without rows: nothing); DecodeConfig::kThreads threads;
// shared memory as launch_decode_config says.
template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks) decode_kernel(AttentionWork work) {
  const AttentionTask task = this_task<C>(work);
  if (task.n_rows == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first_row = warp / C::kKeyWarps * C::kTileRows;
  auto& kept = reinterpret_cast<SharedRows<C::kTileRows>*>(shared_memory() +
                                                           C::kFactsAt)[warp / C::kKeyWarps];
  DecodeThread<C> thread;
  thread.g = static_cast<int>(threadIdx.x) % kWarp / 4;
  thread.t = static_cast<int>(threadIdx.x) % 4;
  const bool keeps = warp % C::kKeyWarps == 0;
  load_decode_queries<C>(work, task, first_row, keeps, kept.positions, kept.heads, thread);
  // The rows of the first item; those of others see no less.
  const RowPlace first = row_place(work, task, 0);
  const RowPlace last = row_place(work, task, task.member_rows - 1);
  const std::int64_t* of_item = work.positions + first.item.positions_at;
  if (keeps && threadIdx.x % kWarp == 0) {
    kept.rows = {.first_position = of_item[first.token],
                 .last_position = of_item[last.token],
                 .sink = first.item.sink,
                 .recent = first.item.recent};
  }
  __syncthreads();  // all that is kept of rows is written before it is read
  UnitWalk<C> walk(work, task, kept.rows, warp % C::kKeyWarps,
                   reinterpret_cast<typename UnitWalk<C>::Shared*>(shared_memory())[warp]);
  attend_units<C>(work, walk, kept.rows, {kept.positions, kept.heads}, thread);
  for (int tile = 0; tile < C::kRowWarps; ++tile) {
    merge_warps<C>(work, task, tile,
                   [&](const WarpStates<C>& states) { put_decode_rows<C>(thread, states); });
  }
}

template <typename C>
void launch_decode_config(Stream& stream, const char* name, const AttentionWork& work) {
  launch(stream, name, decode_kernel<C>,
         {.x = work.n_tasks * (work.tables == nullptr ? 1 : work.n_ranges),
          .block = C::kThreads,
          .shared_bytes = C::kFactsAt + C::kRowWarps * sizeof(SharedRows<C::kTileRows>)},
         work);
}

// Tasks of at most work.most_rows rows. Those whose slots all heads see are decoded without the
// registers that others take.
template <KvType kType, int kHeadDim>
void launch_decode(Stream& stream, const AttentionWork& work) {
  constexpr const char* kName = "attention: decode";
  const bool is_narrow = work.most_rows <= 8;
  if (work.tells_heads) {
    if (is_narrow)
      return launch_decode_config<DecodeConfig<kType, kHeadDim, 1, 1, true>>(stream, kName, work);
    return launch_decode_config<DecodeConfig<kType, kHeadDim, 2, 1, true>>(stream, kName, work);
  }
  if (is_narrow)
    return launch_decode_config<DecodeConfig<kType, kHeadDim, 1, 1, false>>(stream, kName, work);
  launch_decode_config<DecodeConfig<kType, kHeadDim, 2, 1, false>>(stream, kName, work);
}
template <KvType kType, int kHeadDim>
void launch_wide_decode(Stream& stream, const AttentionWork& work) {
  launch_decode_config<DecodeConfig<kType, kHeadDim, 2, 2, true>>(stream, "attention: wide decode",
                                                                  work);
}

}  // namespace
}  // namespace longhaul::cuda
