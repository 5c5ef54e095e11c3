// In prefill on a ring: a chunk's queries meet retrieval heads' tokens of earlier chunks, which lie
// at their homes. Either the queries travel, or the homes put their blocks on the ring again; both
// give the same result (docs/ring.md).
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "partition/cost_model.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/key_ring.h"
#include "worker/ring/own_queries.h"
#include "worker/ring/prefill_layer.h"
#include "worker/ring/query_ring.h"
#include "worker/ring/ring_compensation.h"
#include "worker/ring/ring_place.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it.
class RingHistory {
 public:
  RingHistory(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
              const RingPlace& place, RingContext& context, RingCompensation& compensation);

  // Collective over the ring. Merges what earlier chunks give into the own queries' states; where
  // results are reproducible this chunk too, since each head's one home then meets all its keys in
  // one order. Where
  // keys travel, `keys` takes them, in trains no longer than the longest of `trains`, the chunk's.
  void attend(const PrefillLayer& layer, OwnQueries& own, KeyRing& keys,
              const OfRing<Train>& trains);

  std::size_t buffer_bytes() const { return train_.capacity() + queries_.buffer_bytes(); }

 private:
  HistoryMode mode(const PrefillLayer& layer) const;
  bool may_have_gaps(LayerId layer) const;
  void by_keys(const PrefillLayer& layer, OwnQueries& own, KeyRing& keys, std::size_t longest);
  const std::byte* load(const PrefillLayer& layer, const Train& train);
  void by_queries(const PrefillLayer& layer, OwnQueries& own);
  void attend_visitors(const PrefillLayer& layer, OwnQueries& own,
                       std::span<const QueryRows> visiting);
  void compensate_visitors(std::span<const QueryRows> visiting);

  LayerCompute& compute_;
  const CacheLayout& layout_;
  const RingStage& stage_;
  HistoryChoice choice_;
  std::optional<StageCost> cost_;
  RingCompensation& compensation_;
  QueryRing queries_;
  ByteBuffer train_;
  std::vector<KvBlockRef> refs_;
};

}  // namespace longhaul
