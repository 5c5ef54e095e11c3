// Prefill of one chunk on the ranks of a ring, layer by layer (DESIGN 4): own tokens are projected
// and packed into blocks; streaming heads get the few blocks before their slabs; retrieval heads'
// blocks travel round the ring while homes keep what passes; over the history queries travel, or
// keys. start here: run_layer().
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/kv_copy.h"
#include "partition/cost_model.h"
#include "worker/kv/cache_layout.h"
#include "worker/layer_compute.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/key_ring.h"
#include "worker/ring/query_ring.h"
#include "worker/ring/ring_chunk.h"
#include "worker/ring/ring_context.h"
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
  // What one layer of one chunk is about.
  struct Layer {
    std::int64_t number;
    const RingChunk& chunk;
    SequenceCache& cache;
    const LayerHomes& homes;
    const std::vector<std::vector<Extent>>& queries;  // [ring]
  };
  void run_layer(const Layer& layer);
  void pack(const Layer& layer);
  void project_queries(const Layer& layer);
  void attend_chunk(const Layer& layer);
  void attend_history(const Layer& layer);
  void history_by_keys(const Layer& layer);
  void history_by_queries(const Layer& layer);
  void attend_windows(const Layer& layer, const WindowChunk& window);

  void attend_train(const Layer& layer, const Train& train, const std::byte* bytes);
  void keep(const Layer& layer, const Train& train, const std::byte* bytes);
  void make_room(const Layer& layer, std::int64_t kv_head, const KvBlockRef& block);
  void add_own_history(const Layer& layer, std::int64_t kv_head);
  void attend_visitors(const Layer& layer, std::span<const VisitingQueries> visiting);
  void add_items(const Layer& layer, std::int64_t kv_head, std::span<const KvBlockRef> blocks);
  void attend_items();
  HistoryMode history_mode(const Layer& layer) const;
  bool has_queries() const { return !own_queries_.empty(); }

  LayerCompute& compute_;
  const CacheLayout& layout_;
  const RingStage& stage_;
  HistoryChoice history_;
  RingContext& context_;
  std::optional<StageCost> cost_;
  KeyRing keys_;
  QueryRing queries_;
  WindowExchange windows_;

  // Of the chunk under way. packed_ is [KV heads: retrieval, then windowed][own pieces] blocks.
  std::vector<Extent> own_pieces_;
  ByteBuffer packed_;
  ByteBuffer history_train_;
  std::vector<Train> trains_;           // [ring]
  std::vector<Extent> own_queries_;     // positions
  std::vector<Extent> own_query_rows_;  // of each of them
  std::vector<KvBlockRef> refs_;
  std::vector<AttentionItem> items_;
  std::vector<KvCopyItem> kept_;
};

}  // namespace longhaul
