// What one layer of one chunk is about, in prefill on a ring.
#pragma once
#include <vector>

#include "base/ids.h"
#include "worker/kv/sequence_cache.h"
#include "worker/ring/ring_chunk.h"
#include "worker/ring/ring_stage.h"

namespace longhaul {

struct PrefillLayer {
  LayerId number;
  const RingChunk& chunk;
  SequenceCache& cache;
  const LayerHomes& homes;
  const OfRing<std::vector<Extent>>& queries;  // positions that are asked
};

}  // namespace longhaul
