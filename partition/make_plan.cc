#include "partition/make_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "base/error.h"
#include "model/heads/kept_blocks.h"
#include "partition/cost_model.h"
#include "partition/model_fingerprint.h"
#include "partition/nearest_fit.h"
#include "partition/place_heads.h"
#include "partition/reproducible.h"
#include "partition/split_ranks.h"
#include "partition/stage_layout.h"

namespace longhaul {
namespace {

using RankGroups = std::vector<std::vector<Rank>>;
using ReplicaLayout = std::vector<StageLayout>;

void validate(const PlanRequest& request) {
  request.spec.validate();
  request.cluster.validate();
  request.workload.validate();
  const auto& [spec, heads, cluster, workload, options] = request;
  require_fits(heads, spec);
  require_runnable(heads, RunsOn::kOneRank);
  if (workload.reproducible)
    require_reproducible(heads, cluster.has_gpus() ? Device::kCuda : Device::kCpu);
  for (const KeyWindow& window : heads.windows()) {
    require(window.sink <= Workload::kMaxTokens && window.recent <= Workload::kMaxTokens,
            fmt::format("plan: a window of {} + {} tokens", window.sink, window.recent));
  }
  const std::int64_t n_replicas = options.n_replicas.value_or(1);
  require(n_replicas >= 1 && n_replicas <= cluster.n_ranks(),
          fmt::format("plan: {} replicas asked for, there are {} ranks", n_replicas,
                      cluster.n_ranks()));
  const std::int64_t n_stages = options.n_stages.value_or(1);
  require(n_stages >= 1 && n_stages <= spec.n_layers && n_stages * n_replicas <= cluster.n_ranks(),
          fmt::format("plan: {} stages asked for; the model has {} layers, each replica about {} "
                      "ranks, and a stage needs one of each",
                      n_stages, spec.n_layers, cluster.n_ranks() / n_replicas));
}

// The numbers of stages to try, up to `most`: every one up to 8, then steps of about an eighth, and
// `most` itself. A fixed list, so that more memory never passes over what fitted.
std::vector<std::int64_t> stage_counts(const PlanOptions& options, std::int64_t most) {
  if (options.n_stages) return {*options.n_stages};
  std::vector<std::int64_t> counts;
  for (std::int64_t n = 1; n < most; n += std::max<std::int64_t>(1, n / 8)) counts.push_back(n);
  counts.push_back(most);
  return counts;
}

// As few stages as fit, or those asked for; nullopt when nothing fits.
std::optional<ReplicaLayout> replica_layout(const PlanRequest& request, const StagePlanner& planner,
                                            std::span<const Rank> ranks) {
  const std::int64_t most =
      std::min(request.spec.n_layers, static_cast<std::int64_t>(ranks.size()));
  for (const std::int64_t n : stage_counts(request.options, most)) {
    if (auto stages = planner.that_fits(ranks, n)) return stages;
  }
  return std::nullopt;
}

RankGroups replica_ranks(const PlanRequest& request, std::int64_t n_replicas) {
  return split_by_speed(request.cluster, ranks_by_host(request.cluster), n_replicas,
                        request.options.n_stages.value_or(1));
}

std::optional<std::vector<ReplicaLayout>> layout_of(const PlanRequest& request,
                                                    const StagePlanner& planner,
                                                    std::int64_t n_replicas) {
  std::vector<ReplicaLayout> replicas;
  for (const auto& group : replica_ranks(request, n_replicas)) {
    auto stages = replica_layout(request, planner, group);
    if (!stages) return std::nullopt;
    replicas.push_back(std::move(*stages));
  }
  return replicas;
}

Plan empty_plan(const PlanRequest& request) {
  return {.model = request.options.model.empty() ? model_fingerprint(request.spec)
                                                 : request.options.model,
          .kv = request.workload.kv(request.spec),
          .chunk_len = request.workload.chunk_len,
          .heads = request.heads,
          .replicas = {},
          .reproducible = request.workload.reproducible};
}

std::vector<IndexedVector<KvHeadId, bool>> heads_that_keep_all(const PlanRequest& request,
                                                               Extent layers) {
  std::vector<IndexedVector<KvHeadId, bool>> keeps_all;
  for (const LayerId layer : IdRange<LayerId>(layers)) {
    keeps_all.emplace_back();
    for (const KvHeadId kv_head : IdRange<KvHeadId>(request.spec.n_kv_heads)) {
      keeps_all.back().push_back(request.heads.window(layer, kv_head).is_unlimited());
    }
  }
  return keeps_all;
}

// Turns a layout into a replica; `room` none: as many blocks as there are, for itemising what does
// not fit.
Replica build_replica(const PlanRequest& request, const StagePlanner& planner, const Plan& plan,
                      const ReplicaLayout& layout,
                      std::optional<std::int64_t> room = std::nullopt) {
  Replica replica;
  for (const StageLayout& at : layout) {
    PlacementArgs args = planner.placement_args(at);
    if (room) std::fill(args.room.begin(), args.room.end(), *room);
    Stage stage{.layers = at.layers,
                .ring = at.ring,
                .token_share = at.token_share,
                .home = place_heads(args, heads_that_keep_all(request, at.layers)),
                .ffn_slice = {},
                .vocab_slice = {}};
    set_decode_slices(plan, request.spec, request.cluster, request.workload,
                      request.options.balance, stage);
    replica.stages.push_back(std::move(stage));
  }
  return replica;
}

// The time that the slowest replica needs to read the longest document.
double document_seconds(const PlanRequest& request, const StagePlanner& planner,
                        const std::vector<ReplicaLayout>& replicas) {
  const auto speed = [&](const ReplicaLayout& replica) {
    double gflops = 0;
    for (const StageLayout& stage : replica) gflops += total_gflops(request.cluster, stage.ring);
    return gflops;
  };
  const auto slowest = std::min_element(
      replicas.begin(), replicas.end(),
      [&](const ReplicaLayout& a, const ReplicaLayout& b) { return speed(a) < speed(b); });
  const Plan plan = empty_plan(request);
  const Replica replica = build_replica(request, planner, plan, *slowest);
  const std::int64_t n_tokens =
      std::max(request.workload.document_tokens, request.workload.tail_tokens);
  return prefill_document(plan, replica, request.spec, request.cluster, n_tokens).seconds;
}

// Rule 1: doubles the replicas as long as all fit and a document hardly suffers from having half
// the ranks.
std::optional<std::vector<ReplicaLayout>> choose_layout(const PlanRequest& request,
                                                        const StagePlanner& planner) {
  if (request.options.n_replicas) return layout_of(request, planner, *request.options.n_replicas);
  auto chosen = layout_of(request, planner, 1);
  if (!chosen) return std::nullopt;
  double seconds = document_seconds(request, planner, *chosen);
  const std::int64_t stages = request.options.n_stages.value_or(1);
  for (std::int64_t n = 2; n * stages <= request.cluster.n_ranks(); n *= 2) {
    auto smaller = layout_of(request, planner, n);
    if (!smaller) break;
    const double smaller_seconds = document_seconds(request, planner, *smaller);
    if (smaller_seconds >= request.options.min_gain * seconds) break;
    chosen = std::move(smaller);
    seconds = smaller_seconds;
  }
  return chosen;
}

// The least bad arrangement of what does not fit: the number of stages with the fewest bytes
// missing, heads spread as if room were endless.
NotFitting refuse(const PlanRequest& request, const StagePlanner& planner) {
  NotFitting refusal;
  const RankGroups groups = replica_ranks(request, request.options.n_replicas.value_or(1));
  std::int64_t most = request.spec.n_layers;
  for (const auto& group : groups) most = std::min(most, static_cast<std::int64_t>(group.size()));
  std::int64_t least_missing = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t n : stage_counts(request.options, most)) {
    Plan plan = empty_plan(request);
    for (const auto& group : groups) {
      plan.replicas.push_back(build_replica(request, planner, plan, planner.by_speed(group, n),
                                            /*room=*/std::int64_t{1} << 48));
    }
    auto bytes = memory_of(plan, request.spec, request.cluster, request.workload);
    std::int64_t missing = 0;
    for (const RankBytes& rank : bytes) missing += std::max<std::int64_t>(0, -rank.free());
    if (missing < least_missing) {
      least_missing = missing;
      refusal.bytes = std::move(bytes);
      refusal.missing_bytes = missing;
    }
  }
  refusal.changes = changes_that_fit(request);
  return refusal;
}

}  // namespace

bool plan_fits(const PlanRequest& request) {
  validate(request);
  return layout_of(request, StagePlanner(request), request.options.n_replicas.value_or(1))
      .has_value();
}

PlanResult make_plan(const PlanRequest& request) {
  validate(request);
  const StagePlanner planner(request);
  const auto layout = choose_layout(request, planner);
  if (!layout) return refuse(request, planner);
  Plan plan = empty_plan(request);
  for (const ReplicaLayout& replica : *layout) {
    plan.replicas.push_back(build_replica(request, planner, plan, replica));
  }
  return plan;
}

}  // namespace longhaul
