// Prefill on a ring where heads merge tokens (DMC; kernels/merge_tokens.h). Every rank makes its
// own slabs' tokens, and what merging makes of a slab's first ones needs the last few of the slab
// before: these, and all tokens' decisions, go to all ranks in one gather. So all know which slot
// of which head holds what. What stays in a slot goes to the home of the slot's block; then queries
// go round, against the slots that are at home with each rank. start here: run().
//
//   slabs       0 1 2 | 3 4 5          merges: 1, 3, 4         slots   {0 1} {2 3 4} {5}
//   rank 1 needs tokens 1 2 of rank 0 for its tokens 3 and 4, and rank 0 learns from rank 1's
//   decisions that token 2 does not stay
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "worker/attention/merging.h"
#include "worker/layer_compute.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/of_ring.h"
#include "worker/ring/own_queries.h"
#include "worker/ring/prefill_layer.h"
#include "worker/ring/query_ring.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_stage.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it.
class RingMerging {
 public:
  RingMerging(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
              RingContext& context);

  // Collective over the ring. From the hidden states of this rank's rows to the states of the own
  // queries that are asked, which narrow the step's buffers; the caches then hold the chunk's slots
  // that are at home here. Throws kOutOfMemory; the caches can then only be dropped.
  void run(const PrefillLayer& layer, OwnQueries& queries);

  std::size_t buffer_bytes() const;

 private:
  void project(const PrefillLayer& layer);
  std::vector<std::byte> tails_and_decisions(const PrefillLayer& layer);
  std::size_t bytes_of_slab(Extent slab) const;
  void share(const PrefillLayer& layer);
  void go_on(const PrefillLayer& layer, std::span<const float> tails);
  void merge(const PrefillLayer& layer);
  void pack(const PrefillLayer& layer);
  void exchange();
  void store(const PrefillLayer& layer);
  void attend(const PrefillLayer& layer, const OwnQueries& queries);
  template <typename Body>
  void for_each_staying(const PrefillLayer& layer, const Body& body) const;

  LayerCompute& compute_;
  const CacheLayout& layout_;
  const RingStage& stage_;
  RingContext& context_;
  const TokenMerging merging_;
  QueryRing query_ring_;
  AttentionWork work_;
  SlotQueries slot_queries_;
  // Of the layer under way.
  MergeWeights merge_weights_;
  TensorView<const float, 2> weights_;  // [rows, n_kv_heads]
  ByteBuffer own_tails_;
  ByteBuffer tails_;               // of all slabs in order, behind what was there before
  std::vector<RawRows> before_;    // of each of the own slabs
  std::optional<NewSlots> slots_;  // of the chunk
  OfRing<ByteBuffer> out_;         // k and v of what stays, by home, but for this one
  OfRing<std::size_t> out_bytes_;
  ByteBuffer home_;           // [slots that come home here, k and v], by maker
  OfRing<Extent> home_rows_;  // of each maker
};

}  // namespace longhaul
