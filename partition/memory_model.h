// Bytes of memory per rank, by kind. Everything is a bound that the running job stays below: the
// longest document and the tails of all its forks at once, the largest chunk, both ways of working
// over the history.
#pragma once
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/indexed_vector.h"
#include "model/heads/kept_blocks.h"
#include "model/model_spec.h"
#include "partition/cluster_spec.h"
#include "partition/head_needs.h"
#include "partition/kv_format.h"
#include "partition/plan.h"
#include "partition/workload.h"

namespace longhaul {

struct RankBytes {
  std::int64_t weights = 0;
  std::int64_t kv_retrieval = 0;  // blocks of heads that keep everything
  std::int64_t kv_streaming = 0;  // blocks of heads that keep a window
  // Of a chunk's own tokens, with their blocks before they go home; a GPU's scratch memory, or what
  // a CPU takes while heads choose.
  std::int64_t activations = 0;
  std::int64_t ring_buffers = 0;  // visiting blocks and queries (one moves while one is used)
  std::int64_t transfers = 0;     // of a GPU, for exchanges (partition/transfer_memory.h)
  std::int64_t headroom = 0;
  std::int64_t limit = 0;  // the rank's memory

  std::int64_t total() const {
    return weights + kv_retrieval + kv_streaming + activations + ring_buffers + transfers +
           headroom;
  }
  std::int64_t free() const { return limit - total(); }
  bool operator==(const RankBytes&) const = default;
};

// What a stage asks of its ranks whatever the homes are.
struct StageSize {
  Extent layers;
  std::int64_t n_ranks = 0;
  std::int64_t weights = 0;
  std::int64_t max_all_heads = 0;  // in any of its layers: heads that keep everything
  bool passes_all_blocks = false;  // a ring with reproducible results: windowed heads travel alike
  std::int64_t max_windowed_heads = 0;  // in any of its layers: heads that keep a window
  std::int64_t max_window_blocks = 0;   // the largest such window
  std::int64_t max_sink_blocks = 0;     // of it
  BesideBlocks beside = {};             // of all its heads
  std::int64_t choosing = 0;            // of a CPU while its heads choose (choice_memory.h)
  std::int64_t scratch = 0;             // of a GPU (scratch_memory.h)
};
StageSize stage_size(const ModelSpec& spec, const HeadNeeds& needs, const Workload& workload,
                     Extent layers, std::int64_t n_ranks);

// Blocks that surely fit into `n_bytes` of a rank's memory beside what heads need for them. -1: not
// even that.
std::int64_t room_for_blocks(const BesideBlocks& beside, const KvFormat& kv, std::int64_t n_bytes);

// A bound on the blocks of any chunk that the rank at ring position `position` computes.
std::int64_t max_own_blocks(const Workload& workload, std::int64_t n_ranks, RingPos position,
                            std::int64_t token_share);
// Buffers of the rank at `position`; `largest_share` is the largest token share of the ring, whose
// blocks visit everybody.
std::int64_t activation_bytes(const ModelSpec& spec, const Workload& workload,
                              const StageSize& stage, RingPos position, std::int64_t token_share);
// What a rank of the stage takes besides, for its device.
std::int64_t working_bytes(const RankSpec& rank, const StageSize& stage);
std::int64_t ring_buffer_bytes(const ModelSpec& spec, const Workload& workload,
                               const StageSize& stage, std::int64_t largest_share);

// Blocks of a head that keeps everything, at each entry of home.shares: the document's, and a bound
// on those of the tails of all forks, whose first block may be any.
std::vector<std::int64_t> retrieval_blocks(const Home& home, const Workload& workload);
// Blocks of a head that keeps a window: of the document's sequence and of all its forks.
std::int64_t windowed_blocks(const KeyWindow& kept, const Workload& workload);

// Of what memory_of says: what a memory arena holds of a GPU (base/device/device_cuda.h), which is
// all that a rank takes while it works, and what is free for more caches. 0 on CPUs.
std::int64_t arena_bytes(const RankBytes& bytes, const RankSpec& rank);

// Of every rank of the cluster; ranks without a part in the plan hold nothing but
// their limit. Local, pure.
IndexedVector<Rank, RankBytes> memory_of(const Plan& plan, const ModelSpec& spec,
                                         const ClusterSpec& cluster, const Workload& workload);

}  // namespace longhaul
