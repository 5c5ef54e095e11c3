#include "partition/cost_model.h"

#include <algorithm>

#include "partition/flops.h"
#include "partition/ring_bytes.h"

namespace longhaul {
namespace {

double s_per_flop(const RankSpec& rank) { return 1 / (rank.gflops * 1e9); }

// The part of the document's blocks that each home has, over its speed; the largest, summed over
// the heads of the layer per rank.
double slowest_home(const Stage& stage, const HeadTable& heads, const ClusterSpec& cluster,
                    LayerId layer, std::int64_t n_all_heads) {
  IndexedVector<Rank, double> by_rank(cluster.ranks.size(), 0.0);
  double slowest = 0;
  for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
    if (!heads.window(layer, kv_head).is_unlimited()) continue;
    const Home& home = stage.home_of(layer, kv_head);
    double whole = 0;
    for (const HomeShare& share : home.shares) whole += static_cast<double>(share.weight);
    for (const HomeShare& share : home.shares) {
      double& part = by_rank[share.rank];
      part += static_cast<double>(share.weight) / whole / static_cast<double>(n_all_heads) *
              s_per_flop(cluster.rank(share.rank));
      slowest = std::max(slowest, part);
    }
  }
  return slowest;
}

}  // namespace

HistoryMode HistoryCost::cheaper() const {
  constexpr double kClearly = 0.95;
  const bool keys_travel = keys_travel_bytes < queries_travel_bytes
                               ? queries_travel_s >= kClearly * keys_travel_s
                               : keys_travel_s < kClearly * queries_travel_s;
  return keys_travel ? HistoryMode::kKeysTravel : HistoryMode::kQueriesTravel;
}

ChunkCost& ChunkCost::operator+=(const ChunkCost& other) {
  linear_s += other.linear_s;
  streaming_s += other.streaming_s;
  chunk_s += other.chunk_s;
  history_s += other.history_s;
  n_layers_keys_travel += other.n_layers_keys_travel;
  n_layers_queries_travel += other.n_layers_queries_travel;
  return *this;
}

StageCost::StageCost(const Plan& plan, const Stage& stage, const ModelSpec& spec,
                     const ClusterSpec& cluster)
    : spec_(spec), kv_(plan.kv), first_layer_{stage.layers.begin}, n_ranks_(stage.ring.n()) {
  bool within_host = true;
  for (const RingPos i : stage.ring.ids()) {
    const RankSpec& rank = cluster.rank(stage.ring[i]);
    const double share =
        static_cast<double>(stage.token_share[i]) / static_cast<double>(Stage::kTokenShareTotal);
    share_s_per_flop_ = std::max(share_s_per_flop_, share * s_per_flop(rank));
    within_host = within_host && rank.host == cluster.rank(stage.ring.front()).host;
  }
  const LinkSpec& link = cluster.link;
  link_bytes_per_s_ = 1e9 * (within_host ? link.within_host_gb_per_s : link.between_hosts_gb_per_s);
  link_latency_s_ =
      1e-6 * (within_host ? link.within_host_latency_us : link.between_hosts_latency_us);
  for (const LayerId layer : stage.layer_ids()) {
    const LayerHeads heads = layer_heads(plan.heads, layer);
    layers_.push_back(
        {.heads = heads,
         .home_s_per_flop = slowest_home(stage, plan.heads, cluster, layer, heads.n_all)});
  }
}

double StageCost::ring_s(double bytes_on_all_links) const {
  if (n_ranks_ == 1) return 0;
  return bytes_on_all_links / static_cast<double>(n_ranks_) / link_bytes_per_s_;
}

double StageCost::attention_flops(double keys, std::int64_t n_kv_heads) const {
  return keys * static_cast<double>(n_kv_heads * spec_.gqa_group()) *
         attention_flops_per_key(spec_);
}

HistoryCost StageCost::history(LayerId layer, Extent tokens) const {
  const Layer& at = layers_[static_cast<std::size_t>(layer.value - first_layer_.value)];
  if (at.heads.n_all == 0 || tokens.begin == 0) return {};
  const double flops = attention_flops(visible_history_keys({}, tokens), at.heads.n_all);
  const auto hops = static_cast<double>(n_ranks_ - 1);
  const double key_bytes =
      hops * static_cast<double>(at.heads.n_all * ceil_div(tokens.begin, kv_.block_size)) *
      static_cast<double>(kv_.block_bytes());
  const double q_heads = static_cast<double>(at.heads.n_all * spec_.gqa_group());
  const double state = static_cast<double>(spec_.head_dim + 2) * 4;
  const double query_bytes = static_cast<double>(tokens.size()) * q_heads *
                             (hops * (static_cast<double>(spec_.head_dim) * 4 + state) + state);
  const double latency = hops * link_latency_s_;
  return {.keys_travel_s = std::max(flops * share_s_per_flop_, ring_s(key_bytes)) + latency,
          .queries_travel_s = std::max(flops * at.home_s_per_flop, ring_s(query_bytes)) + latency,
          .keys_travel_bytes = key_bytes,
          .queries_travel_bytes = query_bytes};
}

ChunkCost StageCost::prefill(Extent tokens) const {
  ChunkCost cost;
  const auto hops = static_cast<double>(n_ranks_ - 1);
  const auto n_tokens = static_cast<double>(tokens.size());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerHeads& heads = layers_[i].heads;
    cost.linear_s += n_tokens * linear_flops_per_token(spec_) * share_s_per_flop_;
    if (heads.n_windowed > 0) {
      const double keys = visible_keys(heads.window, tokens);
      cost.streaming_s += attention_flops(keys, heads.n_windowed) * share_s_per_flop_;
      if (n_ranks_ > 1) {
        // Two halos, one before each slab.
        const double halo = static_cast<double>(std::min(heads.window.recent, tokens.end)) *
                            static_cast<double>(heads.n_windowed * kv_.token_bytes());
        cost.streaming_s += 2 * (halo / link_bytes_per_s_ + link_latency_s_);
      }
    }
    if (heads.n_all == 0) continue;
    const double inside = visible_keys({}, tokens) - visible_history_keys({}, tokens);
    const double bytes =
        hops * static_cast<double>(heads.n_all * ceil_div(tokens.size(), kv_.block_size)) *
        static_cast<double>(kv_.block_bytes());
    cost.chunk_s +=
        std::max(attention_flops(inside, heads.n_all) * share_s_per_flop_, ring_s(bytes)) +
        hops * link_latency_s_;
    if (tokens.begin == 0) continue;
    const HistoryCost history =
        this->history({first_layer_.value + static_cast<std::int64_t>(i)}, tokens);
    const bool keys_travel = history.cheaper() == HistoryMode::kKeysTravel;
    cost.history_s += keys_travel ? history.keys_travel_s : history.queries_travel_s;
    ++(keys_travel ? cost.n_layers_keys_travel : cost.n_layers_queries_travel);
  }
  return cost;
}

DocumentCost prefill_document(const Plan& plan, const Replica& replica, const ModelSpec& spec,
                              const ClusterSpec& cluster, std::int64_t n_tokens) {
  DocumentCost cost;
  std::vector<StageCost> stages;
  for (const Stage& stage : replica.stages) stages.emplace_back(plan, stage, spec, cluster);
  cost.stages.resize(stages.size());
  // A stage takes a chunk when it has finished the one before and the previous stage has this one.
  std::vector<double> done_s(stages.size(), 0.0);
  for (std::int64_t begin = 0; begin < n_tokens; begin += plan.chunk_len) {
    const Extent tokens = {begin, std::min(n_tokens, begin + plan.chunk_len)};
    double ready_s = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const ChunkCost chunk = stages[s].prefill(tokens);
      cost.stages[s] += chunk;
      done_s[s] = std::max(done_s[s], ready_s) + chunk.total_s();
      ready_s = done_s[s];
    }
    ++cost.n_chunks;
  }
  cost.seconds = done_s.empty() ? 0 : done_s.back();
  return cost;
}

}  // namespace longhaul
