// Predicted times: of a prefill chunk, of a document, of a decode step, and the bound that they are
// held against. A sum of the slowest rank's
// work and of what cannot hide behind it; transfer and compute of a ring overlap. Speeds are those
// of the ClusterSpec, so predictions are as good as its figures.
#pragma once
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/indexed_vector.h"
#include "model/heads/head_table.h"
#include "model/heads/kept_blocks.h"
#include "model/model_spec.h"
#include "partition/cluster_spec.h"
#include "partition/plan.h"
#include "partition/workload.h"

namespace longhaul {

// How the retrieval heads of a chunk work over the blocks of earlier chunks.
enum class HistoryMode : std::uint8_t {
  kKeysTravel = 0,     // homes put their blocks on the ring again; all compute by token share
  kQueriesTravel = 1,  // queries go round with their partial sums; each home computes on its blocks
};

struct HistoryCost {
  double keys_travel_s = 0;
  double queries_travel_s = 0;
  double keys_travel_bytes = 0;  // on all links
  double queries_travel_bytes = 0;
  // The way that sends less, unless the other is faster by more than a twentieth: predictions are
  // not better than that, and an idle network is worth something.
  HistoryMode cheaper() const;
};

struct ChunkCost {
  double linear_s = 0;     // products with weights, or reading these where a chunk is short
  double streaming_s = 0;  // attention of windowed heads and their halo, sums of what leaves them
  double chunk_s = 0;      // retrieval heads inside the chunk
  double history_s = 0;    // retrieval heads over earlier chunks
  double choosing_s = 0;   // queries that score keys, for heads that keep chosen tokens
  std::int64_t n_layers_keys_travel = 0;
  std::int64_t n_layers_queries_travel = 0;
  double total_s() const { return linear_s + streaming_s + chunk_s + history_s + choosing_s; }
  ChunkCost& operator+=(const ChunkCost& other);
};

// Predictions for one stage. Construct once, ask often: a question costs O(layers), whatever the
// number of ranks.
class StageCost {
 public:
  StageCost(const Plan& plan, const Stage& stage, const ModelSpec& spec,
            const ClusterSpec& cluster);

  // A chunk at positions `tokens` of its sequence, all layers of the stage.
  ChunkCost prefill(Extent tokens) const;
  // When a text of n_tokens is whole: its last queries score its keys, where heads choose by these.
  double choosing_s(std::int64_t n_tokens) const;
  // The choice in one layer; zero cost where no retrieval head or no history is. All ranks of the
  // stage come to the same answer.
  HistoryCost history(LayerId layer, Extent tokens) const;

 private:
  struct Layer {
    LayerHeads heads;
    double home_s_per_flop = 0;       // of the slowest home: its part of the blocks over its speed
    std::int64_t n_with_rest = 0;     // heads that sum up what leaves their windows
    std::int64_t n_observe_all = 0;   // heads whose keys every query scores
    std::int64_t n_last_queries = 0;  // of the others: queries that score keys, summed over heads
    std::int64_t n_alike = 1;  // of the first of those with the same figures: how many; else 0
  };
  ChunkCost layer_cost(const Layer& layer, Extent tokens) const;
  HistoryCost history(const Layer& layer, Extent tokens) const;
  double leaving_s(const Layer& layer, Extent tokens) const;
  double ring_s(double bytes_on_all_links) const;
  double attention_flops(double keys, std::int64_t n_kv_heads) const;
  double score_flops(double keys, std::int64_t n_kv_heads) const;

  ModelSpec spec_;
  KvFormat kv_;
  LayerId first_layer_;
  std::int64_t n_ranks_;
  bool is_reproducible_;
  double largest_share_ = 0;    // of a chunk's tokens
  double read_s_per_byte_ = 0;  // of the slowest rank's memory
  // Of the slowest rank: its token share over its speed on matrices, and on attention.
  double share_s_per_flop_ = 0;
  double share_s_per_attention_flop_ = 0;
  double read_layer_s_ = 0;      // that the slowest rank needs to read a layer's matrices
  double link_bytes_per_s_ = 0;  // of the ring's slowest link
  double link_latency_s_ = 0;
  std::vector<Layer> layers_;  // [layers of the stage]
};

// Reading a document of n_tokens in chunks of plan.chunk_len: the stages work on different chunks
// at the same time.
struct DocumentCost {
  double seconds = 0;
  std::vector<ChunkCost> stages;  // summed over the chunks
  std::int64_t n_chunks = 0;
};
DocumentCost prefill_document(const Plan& plan, const Replica& replica, const ModelSpec& spec,
                              const ClusterSpec& cluster, std::int64_t n_tokens);

// What the arithmetic alone takes where all ranks of the replica share it perfectly and exchange
// takes no time: no plan reads the document faster.
double arithmetic_seconds(const HeadTable& heads, const Replica& replica, const ModelSpec& spec,
                          const ClusterSpec& cluster, std::int64_t n_tokens);

// One token for each of batch_size sequences that are n_tokens long.
struct DecodeCost {
  double seconds = 0;
  double read_s = 0;     // reading weights and caches: the slowest rank of every layer
  double wire_s = 0;     // collectives, and handing over to the next stage
  double latency_s = 0;  // of that: what is not bytes over bandwidth
  IndexedVector<Rank, double> bytes_read;  // 0 for ranks of other replicas
};
DecodeCost decode_step(const Plan& plan, const Replica& replica, const ModelSpec& spec,
                       const ClusterSpec& cluster, const Workload& workload,
                       std::int64_t batch_size, std::int64_t n_tokens);

}  // namespace longhaul
