// What operators on a GPU take of its memory besides their arguments: kernels take it, planning
// counts with it.
#pragma once
#include <cstdint>

namespace longhaul {

// Keys and values that attention on Hopper converts for one pass, at most.
inline constexpr std::int64_t kConvertedKeysBytes = std::int64_t{512} << 20;
// Attention of many rows cuts tiles of a sequence's heads into ranges of so many keys at
// least, so many of them at most, each with a partial state of so many rows.
inline constexpr std::int64_t kMinKeysOfPrefillRange = 1024;
inline constexpr std::int64_t kMostPrefillRanges = 1024;
inline constexpr std::int64_t kRowsOfPrefillRange = 128;
// The workspace of the library for matrix products; as cuBLAS itself takes on Hopper.
inline constexpr std::int64_t kProductWorkspaceBytes = std::int64_t{32} << 20;
// Attention of few rows cuts an item's keys into so many ranges at most, of so many keys at least,
// each with a partial state of so many rows.
inline constexpr std::int64_t kMostKeyRanges = 128;
inline constexpr std::int64_t kMinKeysOfRange = 512;
inline constexpr std::int64_t kRowsOfRange = 16;
// Attention without tensor cores has tiles of so many rows.
inline constexpr std::int64_t kRowsOfPlainTile = 4;
// Scores of keys (kernels/cuda/key_scores.cu) are made for tiles of so many keys; these lie in so
// many parts at most, each with a sum for each row.
inline constexpr std::int64_t kKeysOfScoreTile = 64;
inline constexpr std::int64_t kMostKeyScoreParts = 256;
inline constexpr std::int64_t kKeyScoreSumBytes = 16;
inline constexpr std::int64_t kKeyScoreTileBytes = 40;
inline constexpr std::int64_t kDirectionSumBytes = 8;  // of a dimension
// What describes work to kernels, beside the above: of a block (KvBlockRef); of attention an item,
// one of its tasks, an item that takes part in a task, and a tile that is cut into ranges; of
// bounds of pages a page that gets keys, and the queries of one KV head; of compensation keys the
// queries of one KV head; of rows that are copied an item.
inline constexpr std::int64_t kBlockRefBytes = 32;
inline constexpr std::int64_t kAttentionItemBytes = 136;
inline constexpr std::int64_t kAttentionTaskBytes = 40;
inline constexpr std::int64_t kAttentionMemberBytes = 16;
inline constexpr std::int64_t kAttentionSplitBytes = 24;
inline constexpr std::int64_t kWidenedPageBytes = 48;
inline constexpr std::int64_t kPageGroupBytes = 48;
inline constexpr std::int64_t kCompensateItemBytes = 160;
inline constexpr std::int64_t kCopyRowsBytes = 48;
// Descriptions of work are uploaded through so many pieces of memory, of so many bytes at least.
inline constexpr std::int64_t kNUploadStages = 4;
inline constexpr std::int64_t kUploadStageBytes = std::int64_t{1} << 20;

// Those of a decode step that is queued as a whole (base/device/step_graph.h) lie in memory of
// their own, of so many bytes at most.
inline constexpr std::int64_t kMostStepBytes = std::int64_t{64} << 20;

// Transfers between GPUs (NCCL) have so many thread blocks at most, each with buffers of so many
// bytes for what comes from one rank, and as much for what goes there: NCCL's defaults for its
// three protocols (4 MiB, 4.7 MiB, 0.5 MiB).
inline constexpr int kTransferThreadBlocks = 4;
inline constexpr std::int64_t kTransferBufferBytes = (4 << 20) + 4'915'200 + (512 << 10);

// What a worker takes at its start, in one piece each: of its GPU's memory, and of the host's that
// is pinned for copies (MemoryArena in base/device/device_cuda.h).
struct ArenaBytes {
  std::int64_t gpu = 0;
  std::int64_t pinned = 0;
  bool operator==(const ArenaBytes&) const = default;
};

}  // namespace longhaul
