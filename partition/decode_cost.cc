// Predicted time of a decode step (partition/cost_model.h).
#include <algorithm>

#include "partition/cost_model.h"
#include "partition/decode_reads.h"
#include "partition/ring_bytes.h"

namespace longhaul {
namespace {

double read_seconds(const ClusterSpec& cluster, Rank rank, double bytes) {
  return bytes / (cluster.rank(rank).memory_gb_per_s * 1e9);
}

// Adds the collectives of all layers: rounds of messages side by side, and each rank's bytes over
// the slowest link.
void add_collectives(const Stage& stage, const ModelSpec& spec, const ClusterSpec& cluster,
                     DType weights, std::int64_t batch_size, DecodeCost& cost) {
  const std::int64_t n_ranks = stage.ring.n();
  if (n_ranks == 1) return;
  const Wire wire = cluster.worst_wire(stage.ring);
  const double latency_s = 1e-6 * wire.latency_us;
  const double bytes_per_s = 1e9 * wire.gb_per_s;
  for (const LayerId layer : stage.layer_ids()) {
    const DecodeTraffic traffic = decode_traffic(stage, spec, layer, batch_size, weights);
    const auto rounds_of = [](std::int64_t n) { return n <= kOneRoundReduceBytes ? 1 : 2; };
    const int rounds = (traffic.gather_bytes > 0 ? 1 : 0) + 2 * rounds_of(traffic.reduce_bytes) +
                       (traffic.join_bytes > 0 ? rounds_of(traffic.join_bytes) : 0);
    const double bytes = static_cast<double>(traffic.total) / static_cast<double>(n_ranks);
    cost.latency_s += rounds * latency_s;
    cost.wire_s += rounds * latency_s + bytes / bytes_per_s;
  }
}

// From each stage to the next, and from the last one to the first for the next token.
double hand_over_seconds(const Replica& replica, const ClusterSpec& cluster) {
  const std::size_t n = replica.stages.size();
  double us = 0;
  for (std::size_t s = 0; n > 1 && s < n; ++s) {
    const auto host = [&](const Stage& stage) { return cluster.rank(stage.ring.front()).host; };
    us += cluster.wire(host(replica.stages[s]), host(replica.stages[(s + 1) % n])).latency_us;
  }
  return 1e-6 * us;
}

}  // namespace

DecodeCost decode_step(const Plan& plan, const Replica& replica, const ModelSpec& spec,
                       const ClusterSpec& cluster, const Workload& workload,
                       std::int64_t batch_size, std::int64_t n_tokens) {
  DecodeCost cost;
  cost.bytes_read.assign(cluster.ranks.size(), 0.0);
  const DType dtype = workload.weights(spec);
  IndexedVector<Rank, double> of_layer(cluster.ranks.size(), 0.0);
  for (const Stage& stage : replica.stages) {
    for (const LayerId layer : stage.layer_ids()) {
      for (const Rank rank : stage.ring) of_layer[rank] = 0;
      add_attention_reads(plan, stage, spec, workload, layer, batch_size, n_tokens, of_layer);
      double attention_s = 0;
      double ffn_s = 0;
      for (const RingPos i : stage.ring.ids()) {
        const Rank rank = stage.ring[i];
        const double ffn =
            static_cast<double>(stage.ffn_slice[i].size()) * ffn_column_bytes(spec, dtype);
        attention_s = std::max(attention_s, read_seconds(cluster, rank, of_layer[rank]));
        ffn_s = std::max(ffn_s, read_seconds(cluster, rank, ffn));
        cost.bytes_read[rank] += of_layer[rank] + ffn;
      }
      cost.read_s += attention_s + ffn_s;
    }
    double head_s = 0;
    for (const RingPos i : stage.ring.ids()) {
      const double bytes =
          static_cast<double>(stage.vocab_slice[i].size()) * vocab_row_bytes(spec, dtype);
      head_s = std::max(head_s, read_seconds(cluster, stage.ring[i], bytes));
      cost.bytes_read[stage.ring[i]] += bytes;
    }
    cost.read_s += head_s;
    add_collectives(stage, spec, cluster, dtype, batch_size, cost);
  }
  const double hand_over_s = hand_over_seconds(replica, cluster);
  cost.latency_s += hand_over_s;
  cost.wire_s += hand_over_s;
  cost.seconds = cost.read_s + cost.wire_s;
  return cost;
}

}  // namespace longhaul
