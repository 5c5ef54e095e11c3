// Attention on bf16 tensor cores (compute capability 8.0 and up), with an online softmax, over
// paged blocks of bf16 or codes, giving partial states. One kernel for two purposes:
//
//   prefill   4 warps with 16 rows each share every tile of 64 keys
//   decode    16 rows; 4 warps take a quarter of each tile's keys each, and merge at the end
//   wide      2 times 16 rows and 4 warps share every tile, for items that share blocks; each does
//             what it would do alone, so results have the same bits
//
// Decode of bf16, int8 and int4 with head_dim 64 and 128 is attention_decode.cuh's; what is left
// for decode here are fp8, groups of codes and the other head sizes.
//
// Codes are multiplied as they are, for bf16 holds integers up to 256 and the values of E4M3
// exactly: scales and minima are applied to whole scores and outputs, q.(c s + m) = s (q.c) + m
// sum(q). Where they belong to groups of codes (KIVI), those of K are applied to queries and those
// of V to weights, group by group (attention_mma_groups.cuh). Rows of the tile are read by
// cp.async, kStages - 1 tiles ahead. Queries and weights are rounded to bf16; sums are float32.
//
// Included by one .cu for each cache type.
#pragma once
#include "base/error.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/attention_mma_compute.cuh"
#include "kernels/cuda/attention_mma_groups.cuh"
#include "kernels/cuda/attention_mma_load.cuh"
#include "kernels/cuda/attention_mma_store.cuh"
#include "kernels/cuda/attention_tile.cuh"

namespace longhaul::cuda {
namespace {

// kTells: knows slots that only some query heads see (AttentionWork::tells_heads).
template <KvType kCacheType, int kDim, AttentionPath kPath, bool kTells = true>
struct Config {
  static constexpr KvType kType = kCacheType;
  static constexpr int kHeadDim = kDim;
  static constexpr bool kGroups = holds_groups(kType);
  static constexpr bool kTokenCodes = holds_codes(kType);  // of a token with a range of its own
  static constexpr bool kCodes = kTokenCodes || kGroups;
  static constexpr bool kTellsHeads = kTells;
  static constexpr bool kDecode = kPath != AttentionPath::kPrefill;
  static constexpr int kRows = rows_of_tile(kPath);
  static constexpr int kPartialRows = partial_rows(kPath);
  static constexpr int kTileRows = 16;
  static constexpr int kRowWarps = kRows / 16;
  static constexpr int kKeyWarps = kDecode ? 4 : 1;
  static constexpr int kWarps = kRowWarps * kKeyWarps;
  static constexpr int kThreads = kWarps * kWarp;
  // Thread blocks that a multiprocessor must have registers for; 0: as the compiler likes. It would
  // spill some of decode's to fit a third.
  static constexpr int kMinBlocks = kPath == AttentionPath::kDecode && (kTells || kGroups) ? 2 : 0;
  static constexpr int kWarpKeys = kDecode ? values_of_step(kType)
                                   : kHeadDim > 128 || (kGroups && kHeadDim == 128) ? 32
                                                                                    : 64;
  static constexpr int kKeys = kWarpKeys * kKeyWarps;  // of a tile
  // Tiles of codes are small, and decode has little to do for each.
  static constexpr int kStages = kDecode && kCodes ? 3 : 2;

  // Tiles begin at multiples of so many slots of a block: whole 16-byte copies, words and groups.
  static constexpr int kSlots = kGroups ? static_cast<int>(kKvGroup) : 16;
  static constexpr int kLanes = lanes_of(kType);
  static constexpr int kDimSteps = kHeadDim / 16;
  static constexpr int kKeySteps = kWarpKeys / 16;
  static constexpr int kScoreGroups = kWarpKeys / 8;
  static constexpr int kOutGroups = kHeadDim / 8;
  static constexpr int kDimGroups = kGroups ? kHeadDim / static_cast<int>(kKvGroup) : 1;

  // Rows of words in shared memory.
  static constexpr int kKStride = kKeys + padding_of_k(kType);
  static constexpr int kKRows = kHeadDim / kLanes;
  static constexpr int kVStride = kHeadDim + kPaddingOfV;
  static constexpr int kVRows = kKeys / kLanes;
  // Scales or minima of K or V: of groups [kKeys / kKvGroup, head_dim] for K and [kDimGroups,
  // kKeys] for V.
  static constexpr int kRangeWords = kCodes ? kDimGroups * kKeys / 2 : 0;
  static constexpr int kVAt = kKRows * kKStride;              // in words, from the stage's begin
  static constexpr int kRangesAt = kVAt + kVRows * kVStride;  // K's scales and minima, then V's
  static constexpr int kInfoAt = kRangesAt + 4 * kRangeWords;
  static constexpr int kStageWords = kInfoAt + 4;
  static constexpr int kMergeWords =
      kDecode ? words_of_states(kKeyWarps, kTileRows, kHeadDim) : 0;  // at the end
  // Behind both, for each row: which of the KV head's query heads it belongs to. A register for it
  // would make int4's kernels spill.
  static constexpr int kHeadsAt =
      kStages * kStageWords > kMergeWords ? kStages* kStageWords : kMergeWords;
  static constexpr int kQueriesAt = kHeadsAt + kRows;  // of groups alone (put_queries)
  static constexpr int kQueryWords = kGroups ? 16 * kHeadDim / 2 : 0;  // of a warp
  static constexpr int kWords = kQueriesAt + kRowWarps * kQueryWords;

  static_assert(kHeadDim % values_of_step(kType) == 0);
  static_assert(kWarpKeys % values_of_step(kType) == 0);
  static_assert(kStageWords % 4 == 0 && kVAt % 4 == 0 && kRangesAt % 4 == 0, "16-byte copies");
  static_assert(!kGroups || kQueriesAt % 4 == 0, "16 bytes are read at once");
};

// grid.x is the task, or one of its ranges (without rows: nothing); Config::kThreads threads,
// Config::kWords words of shared memory.
template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks) mma_kernel(AttentionWork work) {
  auto* shared = reinterpret_cast<std::uint32_t*>(shared_memory());
  const AttentionTask task = this_task<C>(work);
  if (task.n_rows == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first_row = warp / C::kKeyWarps * 16;
  Thread<C> thread;
  thread.g = static_cast<int>(threadIdx.x) % kWarp / 4;
  thread.t = static_cast<int>(threadIdx.x) % 4;
  thread.first_key = warp % C::kKeyWarps * C::kWarpKeys;
  load_queries<C>(work, task, first_row, thread, C::kTellsHeads ? shared + C::kHeadsAt : nullptr);
  std::uint32_t* queries = shared + C::kQueriesAt + warp / C::kKeyWarps * C::kQueryWords;
  if constexpr (C::kGroups) put_queries<C>(thread, queries);

  // The rows of the first item; those of others see no less.
  const RowPlace first = row_place(work, task, 0);
  const RowPlace last = row_place(work, task, task.member_rows - 1);
  const std::int64_t* positions = work.positions + first.item.positions_at;
  const Rows rows = {.first_position = positions[first.token],
                     .last_position = positions[last.token],
                     .sink = first.item.sink,
                     .recent = first.item.recent};
  Walk walk = {.item = static_cast<std::int32_t>(work.members[task.first_member].item),
               .next_block = static_cast<std::int32_t>(task.first_block),
               .end_block = static_cast<std::int32_t>(task.first_block + task.n_blocks)};
  const float log2_scale = work.sm_scale * 1.4426950408889634F;
#pragma unroll
  for (int i = 0; i < C::kStages - 1; ++i) {
    load_tile<C>(work, rows, walk, shared + i * C::kStageWords);
  }
  for (int n = 0;; ++n) {
    wait_for_copies<C::kStages - 2>();
    // The tile's copies by all threads are done before any of them reads it; and all are done with
    // the tile before, whose stage is filled next.
    __syncthreads();
    const std::uint32_t* stage = shared + n % C::kStages * C::kStageWords;
    const TileInfo info = *reinterpret_cast<const TileInfo*>(stage + C::kInfoAt);
    if (info.n_keys == 0) break;
    load_tile<C>(work, rows, walk, shared + (n + C::kStages - 1) % C::kStages * C::kStageWords);
    if (thread.first_key >= info.n_keys) continue;  // the same for a whole warp
    float scores[C::kScoreGroups][4];
    if constexpr (C::kGroups) {
      compute_group_scores<C>(thread, queries, stage, scores);
    } else {
      compute_scores<C>(thread, stage, scores);
    }
    finish_scores<C>(thread, stage, info, rows, scores);
    if constexpr (C::kTellsHeads) {
      if (work.tells_heads) hide_from_heads<C>(work, thread, info, shared + C::kHeadsAt, scores);
    }
    apply_softmax<C>(thread, log2_scale, scores);
    if constexpr (C::kGroups) {
      add_group_values<C>(thread, stage, scores);
    } else {
      if constexpr (C::kTokenCodes) weigh_codes<C>(thread, stage, scores);
      add_values<C>(thread, stage, scores);
    }
  }
  finish_rows<C>(thread, work.sm_scale);
  if constexpr (C::kDecode) {
    for (int tile = 0; tile < C::kRowWarps; ++tile) {
      merge_warps<C>(work, task, tile,
                     [&](const WarpStates<C>& states) { put_rows<C>(thread, states); });
    }
  } else {
    store_rows<C>(work, task, first_row, thread);
  }
}

template <typename C>
void launch_config(Stream& stream, const char* name, const AttentionWork& work) {
  launch(stream, name, mma_kernel<C>,
         {.x = work.n_tasks * (work.tables == nullptr ? 1 : work.n_ranges),
          .block = C::kThreads,
          .shared_bytes = std::size_t{4} * C::kWords},
         work);
}

constexpr bool is_wide_head_dim(std::int64_t head_dim) { return head_dim == 64 || head_dim == 128; }
// Whether attention_decode.cuh decodes these.
constexpr bool has_decode_kernel(KvType type, std::int64_t head_dim) {
  return is_wide_head_dim(head_dim) &&
         (type == KvType::kBf16 || type == KvType::kInt8 || type == KvType::kInt4);
}

template <KvType kType, int kHeadDim>
void launch_mma(Stream& stream, AttentionPath path, const AttentionWork& work) {
  using enum AttentionPath;
  constexpr bool kTells = !holds_groups(kType);  // of groups all heads see all slots
  switch (path) {
    case kDecode:
      if constexpr (has_decode_kernel(kType, kHeadDim)) {
        return launch_decode<kType, kHeadDim>(stream, work);
      } else {
        // Others are decoded without the registers that this takes.
        if constexpr (kTells) {
          if (work.tells_heads) {
            return launch_config<Config<kType, kHeadDim, kDecode>>(stream, "attention: decode",
                                                                   work);
          }
        }
        return launch_config<Config<kType, kHeadDim, kDecode, false>>(stream, "attention: decode",
                                                                      work);
      }
    case kWideDecode:
      if constexpr (has_decode_kernel(kType, kHeadDim)) {
        return launch_wide_decode<kType, kHeadDim>(stream, work);
      } else if constexpr (is_wide_head_dim(kHeadDim)) {
        return launch_config<Config<kType, kHeadDim, kWideDecode, kTells>>(
            stream, "attention: wide decode", work);
      }
      break;
    case kPrefill:
      return launch_config<Config<kType, kHeadDim, kPrefill, kTells>>(stream, "attention: prefill",
                                                                      work);
    case kSimt:
      break;
  }
  throw Error(ErrorCode::kInternal, "attention: no such kernel for this head_dim");
}

}  // namespace
}  // namespace longhaul::cuda
