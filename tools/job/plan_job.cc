#include "tools/job/plan_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"
#include "partition/check_plan.h"
#include "partition/explain.h"
#include "partition/memory_model.h"
#include "partition/scratch_memory.h"
#include "tools/job/plan_files.h"

namespace longhaul {
namespace {

ClusterSpec cluster_of(const JobConfig& config, const ClusterSpec& found) {
  if (config.cluster.empty()) return found;
  ClusterSpec cluster = read_cluster(config.cluster);
  if (cluster.n_ranks() != found.n_ranks()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} describes {} ranks, but this job has {}: start as many as it "
                            "describes, or describe those that there are",
                            config.cluster.string(), cluster.n_ranks(), found.n_ranks()));
  }
  return cluster;
}

// What the plan says is taken: a flag that says something else would be passed over.
void require_as_asked(const JobConfig& config, const Plan& plan) {
  const auto require_same = [&](std::string_view flag, const std::optional<std::int64_t>& asked,
                                std::string_view what, std::int64_t planned) {
    require(!asked || *asked == planned,
            fmt::format("{} {}: {} was made for {} of {} tokens; leave the flag out, or make a "
                        "plan with it (longhaul plan {} {})",
                        flag, asked.value_or(0), config.plan.string(), what, planned, flag,
                        asked.value_or(0)));
  };
  require_same("--chunk-len", config.chunk_len, "chunks", plan.chunk_len);
  require_same("--block-size", config.block_size, "cache blocks", plan.kv.block_size);
}

Plan plan_of_file(const JobConfig& config, const JobWork& work, const ClusterSpec& cluster) {
  const std::string source = config.plan.string();
  Plan plan = read_plan(config.plan);
  require(plan.heads == work.heads,
          fmt::format("{} was made for other heads than this run's: give both commands the same "
                      "--head-profile, --retrieval-ratio, --sink, --recent, --policy, "
                      "--full-heads and --streaming-heads",
                      source));
  require(plan.reproducible == work.workload.reproducible,
          fmt::format("{} was made {} --reproducible, this run is {} it", source,
                      plan.reproducible ? "with" : "without",
                      work.workload.reproducible ? "with" : "without"));
  require_as_asked(config, plan);
  require_whole_pages(plan.heads, plan.kv.block_size);
  const ModelSpec& spec = work.model->spec();
  const Workload workload = as_planned(work.workload, plan);
  if (const auto wrong = check_all_but_memory(plan, spec, cluster, workload); !wrong.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is no plan for this run:\n  {}", source, fmt::join(wrong, "\n  ")));
  }
  if (const auto missing = check_memory(plan, spec, cluster, workload); !missing.empty()) {
    throw Error(ErrorCode::kOutOfMemory,
                fmt::format("the plan of {} does not fit the memory of these ranks:\n  {}\nLeave "
                            "--plan out, or make one for them: longhaul plan --json",
                            source, fmt::join(missing, "\n  ")));
  }
  return plan;
}

}  // namespace

Workload as_planned(Workload workload, const Plan& plan) {
  workload.chunk_len = plan.chunk_len;
  workload.block_size = plan.kv.block_size;
  return workload;
}

PlanOptions plan_options(const JobConfig& config) {
  PlanOptions options;
  options.n_stages = config.n_stages;
  options.n_replicas = config.n_replicas;
  if (!config.draft_model.empty()) options.n_replicas = 1;  // for which it guesses
  options.balance = config.decode_balance;
  return options;
}

std::int64_t chunk_len_that_fits(PlanRequest request) {
  const std::int64_t shortest = std::max<std::int64_t>(64, request.workload.block_size);
  const std::int64_t asked = request.workload.chunk_len;
  while (!plan_fits(request)) {
    if (request.workload.chunk_len / 2 < shortest) return asked;
    request.workload.chunk_len /= 2;
  }
  return request.workload.chunk_len;
}

void choose_chunks_by_cost(PlanRequest& request) {
  const ClusterSpec& cluster = request.cluster;
  request.workload.chunk_len =
      default_chunk_len(cluster.n_ranks(), cluster.has_gpus() ? Device::kCuda : Device::kCpu);
  request.workload.chunk_len = chunk_len_that_fits(request);
  request.options.chunk_lens = usual_chunk_lens(request.workload);
}

Plan new_plan(const JobConfig& config, const JobWork& work, const ClusterSpec& cluster) {
  require_whole_pages(work.heads, work.workload.block_size);
  PlanRequest request;
  request.spec = work.model->spec();
  request.heads = work.heads;
  request.cluster = cluster;
  request.workload = work.workload;
  request.options = plan_options(config);
  request.options.profile = work.profile;
  if (!config.chunk_len) choose_chunks_by_cost(request);
  PlanResult result = make_plan(request);
  if (const auto* refusal = std::get_if<NotFitting>(&result)) {
    std::string text = explain(*refusal, cluster);
    while (text.ends_with('\n')) text.pop_back();
    throw Error(ErrorCode::kOutOfMemory, text);
  }
  Plan& plan = std::get<Plan>(result);
  const auto violations =
      check_plan(plan, request.spec, cluster, as_planned(request.workload, plan));
  if (!violations.empty()) {
    throw Error(ErrorCode::kInternal,
                fmt::format("the planner made a wrong plan, please report it: {}",
                            fmt::join(violations, "; ")));
  }
  return std::move(plan);
}

JobPlan plan_job(const JobConfig& config, const JobWork& work, const ClusterSpec& found) {
  ClusterSpec all = cluster_of(config, found);
  std::int64_t& leaders = all.ranks.front().memory_bytes;
  leaders = std::max<std::int64_t>(1, leaders - work.leader_bytes);
  const auto cluster = std::make_shared<const ClusterSpec>(std::move(all));
  Plan plan =
      config.plan.empty() ? new_plan(config, work, *cluster) : plan_of_file(config, work, *cluster);
  std::vector<ArenaBytes> arenas;
  const ModelSpec& spec = work.model->spec();
  const Workload workload = as_planned(work.workload, plan);
  const auto bytes = memory_of(plan, spec, *cluster, workload);
  for (const Rank rank : bytes.ids()) {
    const RankSpec& of_rank = cluster->rank(rank);
    arenas.push_back({.gpu = arena_bytes(bytes[rank], of_rank),
                      .pinned = pinned_bytes(of_rank, spec, plan.heads, workload)});
  }
  return {std::make_shared<const Plan>(std::move(plan)), cluster, std::move(arenas),
          work.n_threads};
}

}  // namespace longhaul
