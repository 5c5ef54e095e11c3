// Adds up how much attention cached tokens get, query after query, for methods that keep the tokens
// that got most of all (KeepBudget with ObserveAll: H2O, Zhang et al. 2023, arXiv 2306.14048).
#pragma once
#include "base/device/device.h"
#include "base/ids.h"
#include "worker/attention/gather_bytes.h"
#include "worker/kv/cache_layout.h"
#include "worker/kv/sequence_cache.h"
#include "worker/weights.h"

namespace longhaul {

// Whether heads of the layer sum up the attention of all queries, and of any layer.
bool observes_all(const CacheLayout& layout, LayerId layer);
bool observes_all(const CacheLayout& layout);

struct AccumulateArgs {
  StreamRef stream;
  const Weights& weights;  // of the layer
  const CacheLayout& layout;
  LayerId layer;
  const ObservedQueries::Rows& rows;  // the same positions on every rank, each once and in order
  const GatherBytes& gather;
};
// The keys of the queries' tokens are in the caches. Queries of heads that have no blocks here are
// not looked at. Collective over the ring. A token's sum depends neither on how queries come
// together nor on which other keys lie beside it.
void accumulate(const AccumulateArgs& args, SequenceCache& cache);

}  // namespace longhaul
