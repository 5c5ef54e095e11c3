#include "partition/plan_search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <list>
#include <map>
#include <span>
#include <utility>

#include "partition/cost_model.h"
#include "partition/dimensions_fingerprint.h"
#include "partition/place_heads.h"
#include "partition/split_ranks.h"

namespace longhaul {
namespace {

// Predictions are not better than this. Stages must bring more: a document's length may be other
// than was thought, and then they have less to do at the same time.
constexpr double kHardlySlower = 1.03;
constexpr double kClearlyFaster = 0.9;
// From so many ranks on fewer arrangements are compared: building one takes milliseconds.
constexpr std::int64_t kManyRanks = 64;
// Texts without an end are compared as if they had so many.
constexpr std::int64_t kEnoughTokens = std::int64_t{1} << 22;

// As few stages as fit, but at least `from`.
std::optional<ReplicaLayout> replica_layout(const PlanRequest& request, const StagePlanner& planner,
                                            std::span<const Rank> ranks, std::int64_t from) {
  const std::int64_t most =
      std::min(request.spec.n_layers, static_cast<std::int64_t>(ranks.size()));
  for (const std::int64_t n : stage_counts(request.options, most)) {
    if (n < from && !request.options.n_stages) continue;
    if (auto stages = planner.that_fits(ranks, n)) return stages;
  }
  return std::nullopt;
}

std::vector<IndexedVector<KvHeadId, bool>> heads_that_see_all(const PlanRequest& request,
                                                              Extent layers) {
  std::vector<IndexedVector<KvHeadId, bool>> sees_all;
  for (const LayerId layer : IdRange<LayerId>(layers)) {
    sees_all.emplace_back();
    for (const KvHeadId kv_head : IdRange<KvHeadId>(request.spec.n_kv_heads)) {
      sees_all.back().push_back(request.heads.window(layer, kv_head).is_unlimited());
    }
  }
  return sees_all;
}

// Sets the times that the slowest replica takes.
void predict(const PlanRequest& request, const StagePlanner& planner, Arrangement& arrangement) {
  const auto speed = [&](const ReplicaLayout& replica) {
    double gflops = 0;
    for (const StageLayout& stage : replica) gflops += total_gflops(request.cluster, stage.ring);
    return gflops;
  };
  const auto slowest = std::min_element(
      arrangement.replicas.begin(), arrangement.replicas.end(),
      [&](const ReplicaLayout& a, const ReplicaLayout& b) { return speed(a) < speed(b); });
  const Plan plan = empty_plan(request);
  const Replica replica = build_replica(request, planner, plan, *slowest);
  const Workload& workload = request.workload;
  const auto enough = [](std::int64_t n) { return std::min(n, kEnoughTokens); };
  const std::int64_t n_tokens = enough(std::max(workload.document_tokens, workload.tail_tokens));
  const DecodeCost answering =
      decode_step(plan, replica, request.spec, request.cluster, workload, workload.n_sequences,
                  enough(workload.document_tokens + workload.tail_tokens));
  arrangement.reading_s =
      prefill_document(plan, replica, request.spec, request.cluster, n_tokens).seconds;
  arrangement.seconds = arrangement.reading_s +
                        static_cast<double>(enough(workload.tail_tokens)) / 2 * answering.seconds;
}

// One length of chunks, and what can be laid out with it.
struct Chunked {
  explicit Chunked(PlanRequest of_length) : request(std::move(of_length)), planner(request) {}
  PlanRequest request;  // the planner refers to it
  StagePlanner planner;
};

class Search {
 public:
  explicit Search(const PlanRequest& request) : request_(request) {
    std::vector<std::int64_t> lengths = request.options.chunk_lens;
    if (lengths.empty()) lengths = {request.workload.chunk_len};
    for (const std::int64_t length : lengths) {
      PlanRequest of_length = request;
      of_length.workload.chunk_len = length;
      lengths_.emplace_back(std::move(of_length));
    }
  }

  // The best with so many replicas.
  std::optional<Arrangement> best(std::int64_t n_replicas) const {
    std::vector<Arrangement> found;
    for (const Chunked& chunked : lengths_) add(chunked, n_replicas, found);
    if (found.empty()) return std::nullopt;
    std::map<std::size_t, const Arrangement*> fastest;  // with so many stages
    for (const Arrangement& one : found) {
      const Arrangement*& best = fastest[n_stages(one)];
      if (best == nullptr || one.seconds < best->seconds) best = &one;
    }
    const Arrangement* chosen = fastest.begin()->second;
    for (const auto& [n, one] : fastest) {
      if (one->seconds < kClearlyFaster * chosen->seconds) chosen = one;
    }
    // Of the same stages the chunks nearest to the usual ones.
    const Arrangement* nearest = chosen;
    for (const Arrangement& one : found) {
      const bool as_good =
          n_stages(one) == n_stages(*chosen) && one.seconds <= kHardlySlower * chosen->seconds;
      if (as_good && strangeness(one) < strangeness(*nearest)) nearest = &one;
    }
    return *nearest;
  }

 private:
  void add(const Chunked& chunked, std::int64_t n_replicas, std::vector<Arrangement>& found) const {
    const std::int64_t n_ranks = request_.cluster.n_ranks();
    const std::int64_t most = std::min(request_.spec.n_layers, n_ranks / n_replicas);
    for (std::int64_t from = 1; from <= most;) {
      auto replicas = layout_that_fits(chunked.request, chunked.planner, n_replicas, from);
      if (!replicas) return;
      std::int64_t n = 0;
      for (const ReplicaLayout& replica : *replicas)
        n = std::max(n, static_cast<std::int64_t>(replica.size()));
      Arrangement& one = found.emplace_back();
      one.replicas = std::move(*replicas);
      one.chunk_len = chunked.request.workload.chunk_len;
      predict(chunked.request, chunked.planner, one);
      if (request_.options.n_stages) return;
      from = n_ranks > kManyRanks ? 2 * n : std::max(from, n) + 1;
    }
  }

  static std::size_t n_stages(const Arrangement& one) {
    std::size_t n = 0;
    for (const ReplicaLayout& replica : one.replicas) n += replica.size();
    return n;
  }
  double strangeness(const Arrangement& one) const {
    return std::abs(std::log2(static_cast<double>(one.chunk_len) /
                              static_cast<double>(request_.workload.chunk_len)));
  }

  const PlanRequest& request_;
  std::list<Chunked> lengths_;
};

}  // namespace

std::vector<std::vector<Rank>> replica_ranks(const PlanRequest& request, std::int64_t n_replicas) {
  return split_by_speed(request.cluster, ranks_by_host(request.cluster), n_replicas,
                        request.options.n_stages.value_or(1));
}

std::vector<std::int64_t> stage_counts(const PlanOptions& options, std::int64_t most) {
  if (options.n_stages) return {*options.n_stages};
  std::vector<std::int64_t> counts;
  for (std::int64_t n = 1; n < most; n += std::max<std::int64_t>(1, n / 8)) counts.push_back(n);
  counts.push_back(most);
  return counts;
}

std::optional<std::vector<ReplicaLayout>> layout_that_fits(const PlanRequest& request,
                                                           const StagePlanner& planner,
                                                           std::int64_t n_replicas,
                                                           std::int64_t from) {
  std::vector<ReplicaLayout> replicas;
  for (const auto& group : replica_ranks(request, n_replicas)) {
    auto stages = replica_layout(request, planner, group, from);
    if (!stages) return std::nullopt;
    replicas.push_back(std::move(*stages));
  }
  return replicas;
}

Plan empty_plan(const PlanRequest& request) {
  return {.model = request.options.model.empty() ? dimensions_fingerprint(request.spec)
                                                 : request.options.model,
          .kv = request.workload.kv(request.spec),
          .chunk_len = request.workload.chunk_len,
          .heads = request.heads,
          .replicas = {},
          .reproducible = request.workload.reproducible};
}

Replica build_replica(const PlanRequest& request, const StagePlanner& planner, const Plan& plan,
                      const ReplicaLayout& layout, std::optional<std::int64_t> room) {
  Replica replica;
  for (const StageLayout& at : layout) {
    PlacementArgs args = planner.placement_args(at);
    if (room) std::fill(args.room.begin(), args.room.end(), *room);
    Stage stage{.layers = at.layers,
                .ring = at.ring,
                .token_share = at.token_share,
                .home = place_heads(args, heads_that_see_all(request, at.layers)),
                .ffn_slice = {},
                .vocab_slice = {}};
    set_decode_slices(plan, request.spec, request.cluster, request.workload,
                      request.options.balance, stage);
    replica.stages.push_back(std::move(stage));
  }
  return replica;
}

std::optional<Arrangement> choose_arrangement(const PlanRequest& request) {
  const Search search(request);
  const PlanOptions& options = request.options;
  if (options.n_replicas) return search.best(*options.n_replicas);
  auto chosen = search.best(1);
  if (!chosen) return std::nullopt;
  const std::int64_t stages = options.n_stages.value_or(1);
  for (std::int64_t n = 2; n * stages <= request.cluster.n_ranks(); n *= 2) {
    auto smaller = search.best(n);
    if (!smaller || smaller->reading_s >= options.min_gain * chosen->reading_s) break;
    chosen = std::move(smaller);
  }
  return chosen;
}

}  // namespace longhaul
