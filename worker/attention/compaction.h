// Cuts a sequence's caches down to the tokens that a method keeps (KeepBudget), when its document
// or its prompt is whole. The observing queries, which every rank has, are asked once more: each
// home scores its own keys, scores are put together in the order of positions, all ranks select
// alike, and each home keeps of its blocks what was selected. Nothing moves between ranks but
// scores.
#pragma once
#include <cstdint>
#include <span>

#include "base/device/device.h"
#include "model/heads/head_policy.h"
#include "worker/attention/gather_bytes.h"
#include "worker/kv/sequence_cache.h"
#include "worker/weights.h"

namespace longhaul {

// How many of a text's last queries a layer's heads ask for; 0: none.
std::int64_t n_observed_queries(const CacheLayout& layout, LayerId layer);
// Of all layers the most.
std::int64_t n_observed_queries(const CacheLayout& layout);

// These rows of a step's queries [n_rows, n_heads, head_dim], which are contiguous, and of their
// positions. With a GPU blocks until they are there.
ObservedQueries::Rows rows_on_host(StreamRef stream, const TensorView<const float, 3>& q,
                                   std::span<const std::int64_t> positions, Extent rows);

// Whether heads of the layer choose at every token.
bool chooses_every_token(const CacheLayout& layout, LayerId layer);
bool chooses_every_token(const CacheLayout& layout, LayerId layer, KvHeadId kv_head);

// The same rows of all ranks, in the order of positions.
ObservedQueries::Rows gather_rows(const ObservedQueries::Rows& own, const GatherBytes& gather);

struct CompactionArgs {
  StreamRef stream;
  const Weights& weights;  // of the cache's layers
  const CacheLayout& layout;
  // Heads with other times are left alone; but those that choose at every token begin when the
  // prompt is whole.
  KeepWhen when = KeepWhen::kAfterPrompt;
  const GatherBytes& gather;
};
// Collective over the ring. Throws kOutOfMemory when the pool has no blocks to gather tokens in;
// the caches can then only be dropped. Where heads chose, the sequence has no observed queries
// afterwards.
void compact(const CompactionArgs& args, SequenceCache& cache);
// The same of one layer, whose observed queries stay.
void compact_layer(const CompactionArgs& args, LayerId layer, SequenceCache& cache);

}  // namespace longhaul
