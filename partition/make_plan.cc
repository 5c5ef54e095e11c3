#include "partition/make_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "partition/nearest_fit.h"
#include "partition/plan_search.h"
#include "partition/reproducible.h"
#include "partition/stage_layout.h"
#include "partition/weight_support.h"

namespace longhaul {
namespace {

void validate(const PlanRequest& request) {
  request.spec.validate();
  request.cluster.validate();
  request.workload.validate();
  const auto& [spec, heads, cluster, workload, options] = request;
  require_fits(heads, spec);
  require_runnable(heads, RunsOn::kOneRank);
  const Device device = cluster.has_gpus() ? Device::kCuda : Device::kCpu;
  require_storable(heads, workload.k_type, workload.v_type);
  if (workload.reproducible) require_reproducible(heads, device);
  require_weights(spec, workload.weights(spec));
  for (const KeyWindow& window : heads.windows()) {
    require(window.sink <= Workload::kMaxTokens && window.recent <= Workload::kMaxTokens,
            fmt::format("plan: a window of {} + {} tokens", window.sink, window.recent));
  }
  const std::int64_t n_replicas = options.n_replicas.value_or(1);
  require(n_replicas >= 1 && n_replicas <= cluster.n_ranks(),
          fmt::format("plan: {} replicas asked for, there are {} ranks", n_replicas,
                      cluster.n_ranks()));
  for (const std::int64_t length : options.chunk_lens)
    require(length >= 1, fmt::format("plan: a chunk of {} tokens", length));
  const std::int64_t n_stages = options.n_stages.value_or(1);
  require(n_stages >= 1 && n_stages <= spec.n_layers && n_stages * n_replicas <= cluster.n_ranks(),
          fmt::format("plan: {} stages asked for; the model has {} layers, each replica about {} "
                      "ranks, and a stage needs one of each",
                      n_stages, spec.n_layers, cluster.n_ranks() / n_replicas));
}

// The least bad arrangement of what does not fit: the number of stages with the fewest bytes
// missing, heads spread as if room were endless.
NotFitting refuse(const PlanRequest& request, const StagePlanner& planner) {
  NotFitting refusal;
  const auto groups = replica_ranks(request, request.options.n_replicas.value_or(1));
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
  return layout_that_fits(request, StagePlanner(request), request.options.n_replicas.value_or(1))
      .has_value();
}

PlanResult make_plan(const PlanRequest& asked) {
  validate(asked);
  const auto chosen = choose_arrangement(asked);
  if (!chosen) return refuse(asked, StagePlanner(asked));
  PlanRequest request = asked;
  request.workload.chunk_len = chosen->chunk_len;
  const StagePlanner planner(request);
  Plan plan = empty_plan(request);
  for (const ReplicaLayout& replica : chosen->replicas) {
    plan.replicas.push_back(build_replica(request, planner, plan, replica));
    if (plan.replicas.back().is_shared()) require_runnable(asked.heads, RunsOn::kRing);
  }
  return plan;
}

std::vector<std::int64_t> usual_chunk_lens(const Workload& workload) {
  constexpr std::int64_t kShortest = 1024;
  constexpr std::int64_t kLongest = std::int64_t{1} << 18;
  std::vector<std::int64_t> lengths = {workload.chunk_len};
  const std::int64_t text = std::max(workload.document_tokens, workload.tail_tokens);
  while (lengths.front() / 2 >= kShortest) lengths.insert(lengths.begin(), lengths.front() / 2);
  while (lengths.back() < text && lengths.back() * 2 <= kLongest)
    lengths.push_back(lengths.back() * 2);
  return lengths;
}

}  // namespace longhaul
