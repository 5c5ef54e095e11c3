// In prefill on a ring: this rank's queries of a layer, attended to blocks of keys as these come
// round, wherever they are from.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "worker/attention/attention_work.h"
#include "worker/layer_compute.h"
#include "worker/ring/key_ring.h"
#include "worker/ring/prefill_layer.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it. Local.
class OwnQueries {
 public:
  OwnQueries(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
             RingContext& context)
      : compute_(compute),
        layout_(layout),
        stage_(stage),
        context_(context),
        work_(compute.spec(), layout, compute.stream()) {}

  // Computes the layer's queries that are asked here and empties their states. Narrows the step's
  // buffers to their rows: of the last layer only the chunk's last token may be wanted.
  void project(const PrefillLayer& layer);
  // The same of queries that the step's buffers have already, of all rows.
  void take(const PrefillLayer& layer);
  bool empty() const { return positions_.empty(); }
  // Of all heads, with their states.
  const QueryRows& all() const { return all_; }
  // Those of each slab.
  std::span<const Extent> rows() const { return rows_; }

  // Attends all of them to a train's blocks.
  void attend(const Train& train, const std::byte* bytes);

  // The same for other blocks: begin, add for each KV head, run. Blocks stay until run().
  void begin() { work_.begin(number_); }
  void add(KvHeadId kv_head, const AttentionWork::Blocks& blocks);
  // Somebody else's queries in the same list.
  void add_visitor(const QueryRows& queries, std::span<const KvBlockRef> blocks);
  void run();

 private:
  void narrow(const PrefillLayer& layer);

  LayerCompute& compute_;
  const CacheLayout& layout_;
  const RingStage& stage_;
  RingContext& context_;
  AttentionWork work_;
  LayerId number_;                 // of the layer
  std::vector<Extent> positions_;  // slab by slab
  std::vector<Extent> rows_;       // of each of them
  QueryRows all_;
  std::vector<KvBlockRef> refs_;
};

}  // namespace longhaul
