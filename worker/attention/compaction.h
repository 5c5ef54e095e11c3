// Cuts a sequence's caches down to the tokens that a method keeps (KeepBudget), when its document
// or its prompt is whole. The observing queries, which every rank has, are asked once more: each
// home scores its own keys, scores are put together in the order of positions, all ranks select
// alike, and each home keeps of its blocks what was selected. Nothing moves between ranks but
// scores.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/device/device.h"
#include "model/heads/head_policy.h"
#include "model/model_spec.h"
#include "worker/kv/sequence_cache.h"

namespace longhaul {

// What every rank of the ring has of something, in ring order; of a rank alone its own.
using GatherBytes =
    std::function<std::vector<std::vector<std::byte>>(std::span<const std::byte> mine)>;

// How many of a text's last queries a layer's heads ask for; 0: none.
std::int64_t n_observed_queries(const CacheLayout& layout, LayerId layer);
// Of all layers the most.
std::int64_t n_observed_queries(const CacheLayout& layout);

// These rows of a step's queries [n_rows, n_heads, head_dim], which are contiguous, and of their
// positions. With a GPU blocks until they are there.
ObservedQueries::Rows rows_on_host(StreamRef stream, const TensorView<const float, 3>& q,
                                   std::span<const std::int64_t> positions, Extent rows);

// The same rows of all ranks, in the order of positions.
ObservedQueries::Rows gather_rows(const ObservedQueries::Rows& own, const GatherBytes& gather);

struct CompactionArgs {
  const ModelSpec& spec;
  const CacheLayout& layout;
  KeepWhen when = KeepWhen::kAfterPrompt;  // heads with other times are left alone
  const GatherBytes& gather;
};
// Collective over the ring. Throws kOutOfMemory when the pool has no blocks to gather tokens in;
// the caches can then only be dropped. Where heads chose, the sequence has no observed queries
// afterwards.
void compact(const CompactionArgs& args, SequenceCache& cache);

}  // namespace longhaul
