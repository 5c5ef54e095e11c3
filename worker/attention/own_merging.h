// The phases of a layer whose heads merge tokens (DMC; kernels/merge_tokens.h) on a rank that has
// all of a batch's keys: project and merge, read each query's own token, append what stays, attend
// to the slots. start here: project().
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "worker/attention/merging.h"
#include "worker/batch.h"
#include "worker/layer_compute.h"

namespace longhaul {

// Used by one thread; compute and layout must outlive it.
class OwnMerging {
 public:
  OwnMerging(LayerCompute& compute, const CacheLayout& layout);

  // Into the step's buffers: q, and k and v as merging makes them, after RoPE, of all rows. The
  // sequences' states are those behind the batch then.
  void project(LayerId layer, const Batch& batch);
  // Empties the queries' states and adds each one's own token. The buffers may be narrowed to the
  // queries' rows before.
  void read_own_tokens();
  // Appends the batch's tokens to the caches. Throws kOutOfMemory; the caches can then only be
  // dropped.
  void append(LayerId layer, const Batch& batch);
  // One segment's queries of one KV head, against the slots before their own.
  void add(AttentionWork& work, const QueryRows& queries, KvHeadId kv_head,
           const BatchSegment& segment, LayerId layer);

 private:
  void merge(LayerId layer, const Batch& batch);
  void add_staying(const BatchSegment& segment, const NewSlots& slots, KvHeadId kv_head);

  LayerCompute& compute_;
  const CacheLayout& layout_;
  const TokenMerging merging_;
  // Of the layer under way.
  TensorView<float, 3> k_;  // of all rows
  TensorView<float, 3> v_;
  MergeWeights weights_;
  std::vector<std::int32_t> staying_;  // rows of what stays in slots, by segment and head
  std::unordered_map<const SequenceCache*, NewSlots> slots_;
  SlotQueries slot_queries_;
};

}  // namespace longhaul
