// Heads that keep a key for what their windows have left behind (Rest), in prefill on a ring. Sums
// of what is gone go from slab to slab in the order of tokens (partition/sum_hops.h): a rank waits
// for those that its slab begins with, lets go what leaves the windows during the slab's queries,
// and hands the sums on; then it asks its queries, each slab's from the sums that it began with.
// So a chunk's tokens are added up one after the other, whoever does it, and the sums have the bits
// of one rank alone; the queries, which are nearly all of the work, are asked in parallel.
//
// Where results are reproducible a head's home has all blocks and all queries come there: it makes
// the sums of all slabs, and nothing travels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cluster/comm/transfer.h"
#include "kernels/compensate.h"
#include "partition/sum_hops.h"
#include "worker/attention/compensation.h"
#include "worker/layer_compute.h"
#include "worker/ring/prefill_layer.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_stage.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it.
class RingCompensation {
 public:
  RingCompensation(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
                   RingContext& context)
      : layout_(layout),
        stage_(stage),
        context_(context),
        work_(compute.spec(), layout, compute.stream()) {}

  // Whether the layer has such heads.
  bool is_for(LayerId layer) const;

  // Collective over the ring. Makes the sums that the chunk's queries begin with; blocks_of gives
  // the blocks of a head that are here, in any order. Homes have the sums of the chunk's end then.
  using BlocksOf = std::function<std::span<const KvBlockRef>(KvHeadId)>;
  void sum_up(const PrefillLayer& layer, const BlocksOf& blocks_of);

  // Local. Adds the keys to the states of queries of one slab: begin, add, run. Nothing is added of
  // heads without such keys, and of heads whose sums are not here.
  void begin() { work_.begin(layer_); }
  void add(const QueryRows& queries, KvHeadId kv_head, Extent rows);
  void run() { work_.run(); }

  std::size_t buffer_bytes() const;

 private:
  struct Head {
    KvHeadId kv_head;
    RingPos home;
    GoneSums sums;                   // so far
    std::vector<KvBlockRef> blocks;  // those that are here, ascending
    std::vector<GoneSums> at_slabs;  // [slabs] that the queries of each begin with
  };
  struct Message {
    RingPos to;
    std::vector<double> sums;  // [heads, k and v, head_dim]
    Transfer transfer;
  };
  void start(const PrefillLayer& layer, const BlocksOf& blocks_of);
  void hand_on(std::int64_t position);
  void send(const SumHop& hop);
  void receive(const SumHop& hop);
  std::size_t n_values(const SumHop& hop) const;
  void let_go(std::int64_t next);

  const CacheLayout& layout_;
  const RingStage& stage_;
  RingContext& context_;
  Compensation work_;
  // Of the layer under way.
  LayerId layer_;
  KeyWindow window_;
  std::vector<Slab> slabs_;
  std::vector<Head> heads_;
  std::vector<SumHop> hops_;
  std::vector<Message> sent_;
  std::vector<double> received_;
};

}  // namespace longhaul
