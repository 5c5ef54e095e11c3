// Prefill of one chunk on the ranks of a ring, layer by layer (docs/ring.md): own tokens are
// projected and packed into blocks; streaming heads get the few blocks before their slabs;
// retrieval heads' blocks travel round the ring while homes keep what passes; over the history
// queries travel, or keys. start here: run_layer().
#pragma once
#include <cstddef>
#include <optional>

#include "worker/kv/cache_layout.h"
#include "worker/layer_compute.h"
#include "worker/ring/chunk_blocks.h"
#include "worker/ring/key_ring.h"
#include "worker/ring/open_chunk.h"
#include "worker/ring/own_queries.h"
#include "worker/ring/ring_chunk.h"
#include "worker/ring/ring_compensation.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_history.h"
#include "worker/ring/ring_merging.h"
#include "worker/ring/ring_place.h"
#include "worker/ring/ring_stage.h"
#include "worker/ring/window_exchange.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it.
class RingPrefill {
 public:
  RingPrefill(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
              const RingPlace& place, RingContext& context);

  // Collective over the ring. Runs the stage's layers over the chunk; compute.buffers() has the
  // rows of this rank's slabs, in token order, with hidden states. The caches then hold the chunk's
  // blocks that are at home here. Afterwards buffers().hidden has the rows of chunk.queries().
  void run(const RingChunk& chunk, SequenceCache& cache);

  std::size_t buffer_bytes() const;

 private:
  void run_layer(const PrefillLayer& layer);
  void observe(const PrefillLayer& layer);
  void attend_chunk(const PrefillLayer& layer);
  void attend_windows(const PrefillLayer& layer, const WindowChunk& window);
  void compensate_windows(const PrefillLayer& layer);
  void sum_at_homes(const PrefillLayer& layer);
  void attend_open();
  void finish(const PrefillLayer& layer);

  LayerCompute& compute_;
  const CacheLayout& layout_;
  const RingStage& stage_;
  RingContext& context_;
  ChunkBlocks blocks_;
  OwnQueries queries_;
  KeyRing keys_;
  RingCompensation compensation_;
  RingHistory history_;
  WindowExchange windows_;
  std::optional<RingMerging> merging_;  // where heads merge tokens
  std::optional<OpenChunk> open_;       // where tokens are quantised in groups
};

}  // namespace longhaul
