#include "partition/cost_model.h"

#include <algorithm>
#include <limits>

#include "partition/flops.h"
#include "partition/sum_hops.h"
#include "partition/weight_bytes.h"

namespace longhaul {
namespace {

double s_per_attention_flop(const RankSpec& rank) { return 1 / (rank.attention_speed() * 1e9); }

double matrix_bytes_of_layer(const ModelSpec& spec) {
  return linear_flops_per_token(spec) / 2 *
         static_cast<double>(matrix_bytes(1, spec.d_model, spec.weight_dtype)) /
         static_cast<double>(spec.d_model);
}

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
              s_per_attention_flop(cluster.rank(share.rank));
      slowest = std::max(slowest, part);
    }
  }
  return slowest;
}

// Until the next stage has a token's hidden state; all ranks send theirs at the same time.
double hand_over_s_per_token(const Stage& stage, const Stage& next, const ModelSpec& spec,
                             const ClusterSpec& cluster) {
  const std::int64_t n_links = std::min(stage.ring.n(), next.ring.n());
  double slowest = std::numeric_limits<double>::max();
  for (const RingPos i : IdRange<RingPos>(n_links)) {
    const Wire wire =
        cluster.wire(cluster.rank(stage.ring[i]).host, cluster.rank(next.ring[i]).host);
    slowest = std::min(slowest, wire.gb_per_s * 1e9);
  }
  return static_cast<double>(spec.d_model) * sizeof(float) /
         (static_cast<double>(n_links) * slowest);
}

bool alike(const LayerHeads& a, const LayerHeads& b) {
  return a.n_all == b.n_all && a.n_windowed == b.n_windowed && a.window == b.window;
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
  choosing_s += other.choosing_s;
  n_layers_keys_travel += other.n_layers_keys_travel;
  n_layers_queries_travel += other.n_layers_queries_travel;
  return *this;
}

StageCost::StageCost(const Plan& plan, const Stage& stage, const ModelSpec& spec,
                     const ClusterSpec& cluster)
    : spec_(spec),
      kv_(plan.kv),
      first_layer_{stage.layers.begin},
      n_ranks_(stage.ring.n()),
      is_reproducible_(plan.reproducible) {
  for (const RingPos i : stage.ring.ids()) {
    const RankSpec& rank = cluster.rank(stage.ring[i]);
    const double share =
        static_cast<double>(stage.token_share[i]) / static_cast<double>(Stage::kTokenShareTotal);
    share_s_per_flop_ = std::max(share_s_per_flop_, share / (rank.gflops * 1e9));
    share_s_per_attention_flop_ =
        std::max(share_s_per_attention_flop_, share * s_per_attention_flop(rank));
    largest_share_ = std::max(largest_share_, share);
    read_s_per_byte_ = std::max(read_s_per_byte_, 1 / (rank.memory_gb_per_s * 1e9));
    if (stage.token_share[i] > 0) {
      read_layer_s_ =
          std::max(read_layer_s_, matrix_bytes_of_layer(spec) / (rank.memory_gb_per_s * 1e9));
    }
  }
  const Wire wire = cluster.ring_wire(stage.ring);
  link_bytes_per_s_ = 1e9 * wire.gb_per_s;
  link_latency_s_ = 1e-6 * wire.latency_us;
  for (const LayerId layer : stage.layer_ids()) {
    const LayerHeads heads = layer_heads(plan.heads, layer);
    layers_.push_back(
        {.heads = heads,
         .home_s_per_flop = slowest_home(stage, plan.heads, cluster, layer, heads.n_all)});
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
      const HeadPolicy& policy = plan.heads.at(layer, kv_head);
      if (policy.rest != Rest::kNothing) ++layers_.back().n_with_rest;
      const auto* keep = std::get_if<KeepBudget>(&policy.keep);
      if (keep == nullptr) continue;
      if (const auto* last = std::get_if<ObserveLast>(&keep->observe)) {
        layers_.back().n_last_queries += last->n_queries;
      } else if (std::holds_alternative<ObserveAll>(keep->observe)) {
        ++layers_.back().n_observe_all;
      }
    }
  }
  for (std::size_t i = 1; i < layers_.size(); ++i) {
    const auto first = std::find_if(layers_.begin(), layers_.end(), [&](const Layer& layer) {
      return alike(layer.heads, layers_[i].heads) &&
             layer.home_s_per_flop == layers_[i].home_s_per_flop &&
             layer.n_with_rest == layers_[i].n_with_rest &&
             layer.n_observe_all == layers_[i].n_observe_all;
    });
    if (first == layers_.begin() + static_cast<std::ptrdiff_t>(i)) continue;
    ++first->n_alike;
    layers_[i].n_alike = 0;
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

// Of the products with keys alone, without values.
double StageCost::score_flops(double keys, std::int64_t n_kv_heads) const {
  return attention_flops(keys, n_kv_heads) / 2;
}

double StageCost::choosing_s(std::int64_t n_tokens) const {
  double seconds = 0;
  for (const Layer& layer : layers_) {
    seconds +=
        score_flops(static_cast<double>(n_tokens), layer.n_last_queries) * layer.home_s_per_flop;
  }
  return seconds;
}

HistoryCost StageCost::history(LayerId layer, Extent tokens) const {
  return history(layers_[static_cast<std::size_t>(layer.value - first_layer_.value)], tokens);
}

HistoryCost StageCost::history(const Layer& at, Extent tokens) const {
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
  return {
      .keys_travel_s = std::max(flops * share_s_per_attention_flop_, ring_s(key_bytes)) + latency,
      .queries_travel_s = std::max(flops * at.home_s_per_flop, ring_s(query_bytes)) + latency,
      .keys_travel_bytes = key_bytes,
      .queries_travel_bytes = query_bytes};
}

// Sums of what leaves windows (partition/sum_hops.h): slabs add it up one after the other, each
// when it has the sums of the one before; then each rank does it once more, beside its own queries.
// Where homes make all sums nothing waits. Additions take what reading keys and values takes.
double StageCost::leaving_s(const Layer& layer, Extent tokens) const {
  const KeyWindow& window = layer.heads.window;
  const std::int64_t n_gone = window.n_gone(tokens.end) - window.n_gone(tokens.begin);
  if (layer.n_with_rest == 0 || n_gone == 0) return 0;
  const double additions_s =
      static_cast<double>(n_gone * layer.n_with_rest * kv_.token_bytes()) * read_s_per_byte_;
  if (n_ranks_ == 1 || is_reproducible_) return additions_s;
  const double sum_bytes = static_cast<double>(layer.n_with_rest * sums_of_head(spec_.head_dim)) *
                           static_cast<double>(sizeof(double));
  // Out of the home, between two slabs of different ranks, and home.
  const auto n_hops = static_cast<double>(2 * n_ranks_);
  return (1 + largest_share_) * additions_s +
         n_hops * (sum_bytes / link_bytes_per_s_ + link_latency_s_);
}

ChunkCost StageCost::layer_cost(const Layer& layer, Extent tokens) const {
  ChunkCost cost;
  const LayerHeads& heads = layer.heads;
  const auto hops = static_cast<double>(n_ranks_ - 1);
  const auto n_tokens = static_cast<double>(tokens.size());
  cost.linear_s =
      std::max(n_tokens * linear_flops_per_token(spec_) * share_s_per_flop_, read_layer_s_);
  if (heads.n_windowed > 0) {
    const double keys = visible_keys(heads.window, tokens);
    cost.streaming_s += attention_flops(keys, heads.n_windowed) * share_s_per_attention_flop_;
    if (n_ranks_ > 1) {
      // Two halos, one before each slab.
      const double halo = static_cast<double>(std::min(heads.window.recent, tokens.end)) *
                          static_cast<double>(heads.n_windowed * kv_.token_bytes());
      cost.streaming_s += 2 * (halo / link_bytes_per_s_ + link_latency_s_);
    }
    cost.streaming_s += leaving_s(layer, tokens);
  }
  if (heads.n_all == 0) return cost;
  cost.choosing_s =
      score_flops(visible_keys({}, tokens), layer.n_observe_all) * layer.home_s_per_flop;
  const double inside = visible_keys({}, tokens) - visible_history_keys({}, tokens);
  const double bytes = hops *
                       static_cast<double>(heads.n_all * ceil_div(tokens.size(), kv_.block_size)) *
                       static_cast<double>(kv_.block_bytes());
  cost.chunk_s =
      std::max(attention_flops(inside, heads.n_all) * share_s_per_attention_flop_, ring_s(bytes)) +
      hops * link_latency_s_;
  if (tokens.begin == 0) return cost;
  const HistoryCost history = this->history(layer, tokens);
  const bool keys_travel = history.cheaper() == HistoryMode::kKeysTravel;
  cost.history_s = keys_travel ? history.keys_travel_s : history.queries_travel_s;
  ++(keys_travel ? cost.n_layers_keys_travel : cost.n_layers_queries_travel);
  return cost;
}

ChunkCost StageCost::prefill(Extent tokens) const {
  ChunkCost cost;
  for (const Layer& layer : layers_) {
    if (layer.n_alike == 0) continue;
    const ChunkCost of_one = layer_cost(layer, tokens);
    for (std::int64_t n = 0; n < layer.n_alike; ++n) cost += of_one;
  }
  return cost;
}

DocumentCost prefill_document(const Plan& plan, const Replica& replica, const ModelSpec& spec,
                              const ClusterSpec& cluster, std::int64_t n_tokens) {
  DocumentCost cost;
  std::vector<StageCost> stages;
  for (const Stage& stage : replica.stages) stages.emplace_back(plan, stage, spec, cluster);
  cost.stages.resize(stages.size());
  std::vector<double> hand_over_s(1, 0.0);  // per token, to each stage
  for (std::size_t s = 1; s < stages.size(); ++s) {
    hand_over_s.push_back(
        hand_over_s_per_token(replica.stages[s - 1], replica.stages[s], spec, cluster));
  }
  // A stage takes a chunk when it has finished the one before and the previous stage has this one.
  std::vector<double> done_s(stages.size(), 0.0);
  for (std::int64_t begin = 0; begin < n_tokens; begin += plan.chunk_len) {
    const Extent tokens = {begin, std::min(n_tokens, begin + plan.chunk_len)};
    double ready_s = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      ChunkCost chunk = stages[s].prefill(tokens);
      if (tokens.end == n_tokens) chunk.choosing_s += stages[s].choosing_s(n_tokens);
      cost.stages[s] += chunk;
      ready_s += static_cast<double>(tokens.size()) * hand_over_s[s];
      done_s[s] = std::max(done_s[s], ready_s) + chunk.total_s();
      ready_s = done_s[s];
    }
    ++cost.n_chunks;
  }
  cost.seconds = done_s.empty() ? 0 : done_s.back();
  return cost;
}

double arithmetic_seconds(const HeadTable& heads, const Replica& replica, const ModelSpec& spec,
                          const ClusterSpec& cluster, std::int64_t n_tokens) {
  double gflops = 0;
  double attention_gflops = 0;
  double linear_flops = 0;
  double attention_flops = 0;
  const Extent document = {0, n_tokens};
  for (const Stage& stage : replica.stages) {
    for (const Rank rank : stage.ring) {
      gflops += cluster.rank(rank).gflops;
      attention_gflops += cluster.rank(rank).attention_speed();
    }
    for (const LayerId layer : stage.layer_ids()) {
      const LayerHeads kept = layer_heads(heads, layer);
      linear_flops += static_cast<double>(n_tokens) * linear_flops_per_token(spec);
      const double keys = static_cast<double>(kept.n_all) * visible_keys({}, document) +
                          (kept.n_windowed > 0 ? static_cast<double>(kept.n_windowed) *
                                                     visible_keys(kept.window, document)
                                               : 0);
      attention_flops +=
          keys * static_cast<double>(spec.gqa_group()) * attention_flops_per_key(spec);
    }
  }
  return linear_flops / (gflops * 1e9) + attention_flops / (attention_gflops * 1e9);
}

}  // namespace longhaul
