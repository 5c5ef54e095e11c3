// Decode on a ring where heads merge tokens (DMC; kernels/merge_tokens.h). A head's first home
// projects its new keys and values; all ranks get them in one gather, so that all know what merges,
// and each stores the slots that are at home with it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "worker/attention/merging.h"
#include "worker/forward.h"
#include "worker/layer_compute.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_stage.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it.
class MergingDecode {
 public:
  MergingDecode(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
                RingContext& context);

  // Collective over the ring. `own` are the queries of the heads that are at home here, before
  // RoPE; they are after it then, and the rows' tokens in the caches. Throws kOutOfMemory.
  void append(LayerId layer, std::span<const DecodeRow> rows, std::span<const QueryRows> own);
  // One row's queries of one KV head of a run, against the slots that are here.
  void add(AttentionWork& work, const QueryRows& run, KvHeadId kv_head, std::int64_t row,
           const HeadCache& cache);

 private:
  std::vector<KvHeadId> made_by(LayerId layer, RingPos position) const;
  std::span<const std::byte> project(LayerId layer, std::span<const QueryRows> own);
  void gather(LayerId layer, std::span<const QueryRows> own);
  void merge(LayerId layer, std::span<const DecodeRow> rows);
  void store(LayerId layer, std::span<const DecodeRow> rows);
  std::int64_t n_rows() { return compute_.buffers().hidden.dim(0); }

  LayerCompute& compute_;
  const CacheLayout& layout_;
  const RingStage& stage_;
  RingContext& context_;
  const TokenMerging merging_;
  // Of the layer under way.
  MergeWeights weights_;
  ByteBuffer mine_;              // of the heads made here: [heads, rows, k and v and the weight]
  ByteBuffer all_;               // of those of all ranks, as they come
  ByteBuffer weights_of_all_;    // [rows, n_kv_heads]
  std::vector<NewSlots> slots_;  // of each row
  SlotQueries slot_queries_;
};

}  // namespace longhaul
