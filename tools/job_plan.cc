#include "tools/job_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "partition/byte_size.h"
#include "partition/check_plan.h"
#include "partition/explain.h"
#include "partition/make_plan.h"
#include "partition/memory_model.h"
#include "partition/plan_json.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxClusterFile = std::size_t{16} << 20;
constexpr std::size_t kMaxPlanFile = std::size_t{1} << 30;
constexpr std::size_t kSampleBytes = std::size_t{64} << 10;

std::int64_t with_margin(double n_tokens) {
  return static_cast<std::int64_t>(std::ceil(n_tokens * 1.1)) + 16;
}

std::int64_t count_tokens(const Tokenizer& tokenizer, std::string_view text) {
  return static_cast<std::int64_t>(
      tokenizer.encode(std::string(text), {.add_special_tokens = true}).size());
}

// Estimated from its begin, middle and end; all of a short one.
std::int64_t estimate_tokens(const Tokenizer& tokenizer, std::string_view text) {
  if (text.size() <= 3 * kSampleBytes) return count_tokens(tokenizer, text);
  double densest = 0;
  for (const std::size_t at : {std::size_t{0}, text.size() / 2, text.size() - kSampleBytes}) {
    // Samples begin and end between characters.
    std::size_t begin = at;
    std::size_t end = at + kSampleBytes;
    const auto in_character = [&](std::size_t i) {
      return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U;
    };
    while (in_character(begin)) ++begin;
    while (in_character(end)) --end;
    const auto n = static_cast<double>(count_tokens(tokenizer, text.substr(begin, end - begin)));
    densest = std::max(densest, n / static_cast<double>(end - begin));
  }
  return static_cast<std::int64_t>(densest * static_cast<double>(text.size()));
}

std::int64_t longest_document(const Tokenizer& tokenizer, const std::vector<RequestGroup>& groups) {
  const auto longest =
      std::max_element(groups.begin(), groups.end(),
                       [](const auto& a, const auto& b) { return a.n_bytes < b.n_bytes; });
  if (longest == groups.end() || longest->documents.empty()) return 0;
  double n_tokens = 0;
  for (const auto& path : longest->documents)
    n_tokens += static_cast<double>(estimate_tokens(tokenizer, MappedFile(path).text()));
  return with_margin(n_tokens);
}

std::int64_t longest_tail(const RunSession& session, const std::vector<RequestGroup>& groups,
                          const std::vector<Request>& requests) {
  std::string_view longest_text;
  std::int64_t n_ids = 0;
  std::int64_t n_new = 0;
  for (const RequestGroup& group : groups) {
    for (const std::size_t index : group.requests) {
      const Request& request = requests[index];
      n_new = std::max(n_new, max_tokens_of(request, session.preparation.defaults));
      if (const auto* text = std::get_if<std::string>(&request.prompt)) {
        if (text->size() > longest_text.size()) longest_text = *text;
      } else {
        n_ids = std::max(n_ids, static_cast<std::int64_t>(std::get<1>(request.prompt).size()));
      }
    }
  }
  const std::int64_t n_text = estimate_tokens(session.tokenizer, longest_text);
  return std::max(n_ids, with_margin(static_cast<double>(n_text))) + n_new;
}

ClusterSpec cluster_of(const RunOptions& options, const ClusterSpec& found) {
  if (options.cluster.empty()) return found;
  ClusterSpec cluster = read_cluster(options.cluster);
  if (cluster.n_ranks() != found.n_ranks()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} describes {} ranks, but this job has {}: start as many as it "
                            "describes, or describe those that there are",
                            options.cluster.string(), cluster.n_ranks(), found.n_ranks()));
  }
  return cluster;
}

Plan plan_for(const RunSession& session, const RunOptions& options) {
  const std::string source = options.plan.string();
  Plan plan = read_plan(options.plan);
  require(plan.roles == session.roles,
          fmt::format("{} was made for other head roles than this run's: give both commands the "
                      "same --head-profile, --retrieval-ratio, --sink and --recent",
                      source));
  return plan;
}

Plan new_plan(const RunSession& session, const RunOptions& options, const ClusterSpec& cluster,
              const Workload& workload) {
  PlanRequest request;
  request.spec = session.model.config().spec;
  request.roles = session.roles;
  request.cluster = cluster;
  request.workload = workload;
  request.options.n_stages = options.n_stages;
  request.options.n_replicas = options.n_replicas;
  request.options.balance =
      options.decode_balance == "phases" ? DecodeBalance::kEachPhase : DecodeBalance::kTotalBytes;
  request.options.profile = session.profile;
  // Buffers grow with the chunk. One that the user did not ask for gives way.
  constexpr std::int64_t kShortest = 256;
  while (!options.chunk_len && !plan_fits(request) && request.workload.chunk_len > kShortest)
    request.workload.chunk_len /= 2;
  if (!plan_fits(request)) request.workload.chunk_len = workload.chunk_len;
  PlanResult result = make_plan(request);
  if (const auto* refusal = std::get_if<NotFitting>(&result)) {
    std::string text = explain(*refusal, cluster);
    while (text.ends_with('\n')) text.pop_back();
    throw Error(ErrorCode::kOutOfMemory, text);
  }
  Plan& plan = std::get<Plan>(result);
  const auto violations = check_plan(plan, request.spec, cluster, request.workload);
  if (!violations.empty()) {
    throw Error(ErrorCode::kInternal,
                fmt::format("the planner made a wrong plan, please report it: {}",
                            fmt::join(violations, "; ")));
  }
  return std::move(plan);
}

std::string plural(std::size_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

}  // namespace

ClusterSpec read_cluster(const std::filesystem::path& file) {
  return parse_cluster_toml(read_file(file, kMaxClusterFile), file.string());
}

Plan read_plan(const std::filesystem::path& file) {
  const std::string source = file.string();
  const JsonLimits limits{.max_bytes = kMaxPlanFile};
  return plan_from_json(parse_json(read_file(file, kMaxPlanFile), source, limits), source);
}

Workload as_planned(Workload workload, const Plan& plan) {
  workload.chunk_len = plan.chunk_len;
  workload.block_size = plan.kv.block_size;
  return workload;
}

Workload estimate_workload(const RunSession& session, const RunOptions& options,
                           const std::vector<RequestGroup>& groups,
                           const std::vector<Request>& requests, std::int64_t n_ranks) {
  std::int64_t n_requests = 0;
  for (const RequestGroup& group : groups)
    n_requests += static_cast<std::int64_t>(group.requests.size());
  const std::int64_t ctx_size = session.preparation.ctx_size;
  Workload workload;
  workload.document_tokens = std::min(longest_document(session.tokenizer, groups), ctx_size);
  workload.tail_tokens = std::min(longest_tail(session, groups, requests), ctx_size);
  workload.n_sequences = std::clamp<std::int64_t>(n_requests, 1, options.parallel);
  workload.chunk_len = options.chunk_len.value_or(default_chunk_len(n_ranks));
  workload.k_type = session.k_type;
  workload.v_type = session.v_type;
  workload.block_size = options.block_size;
  workload.weight_dtype = session.weights;
  return workload;
}

JobPlan plan_job(const RunSession& session, const RunOptions& options, const Workload& workload,
                 const ClusterSpec& found) {
  auto cluster = std::make_shared<const ClusterSpec>(cluster_of(options, found));
  if (options.plan.empty()) {
    auto plan = std::make_shared<const Plan>(new_plan(session, options, *cluster, workload));
    return {std::move(plan), std::move(cluster)};
  }
  auto plan = std::make_shared<const Plan>(plan_for(session, options));
  const auto violations =
      check_plan(*plan, session.model.config().spec, *cluster, as_planned(workload, *plan));
  if (!violations.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is no plan for this run:\n  {}", options.plan.string(),
                            fmt::join(violations, "\n  ")));
  }
  return {std::move(plan), std::move(cluster)};
}

EngineConfig engine_config(const RunSession& session, const JobPlan& job, const Workload& workload,
                           std::size_t replica) {
  const Plan& plan = *job.plan;
  const std::vector<Stage>& stages = plan.replicas[replica].stages;
  EngineConfig config = session.engine;
  config.n_ahead = std::max<std::size_t>(2, stages.size() + 1);
  config.lane = replica;
  if (plan.replicas.size() > 1) config.max_unread = 2;
  config.scheduler.chunk_len = plan.chunk_len;
  KvBudget& budget = config.scheduler.budget;
  budget.chunk_len = plan.chunk_len;
  budget.block_size = plan.kv.block_size;

  // What the plan was made for, and as many times that as the fullest rank has room for.
  double scale = 1e9;
  const auto bytes =
      memory_of(plan, session.model.config().spec, *job.cluster, as_planned(workload, plan));
  for (const Stage& stage : stages) {
    for (const Rank rank : stage.ring) {
      const RankBytes& mine = bytes[static_cast<std::size_t>(rank.value)];
      const auto kv = static_cast<double>(mine.kv_retrieval + mine.kv_streaming);
      if (kv > 0)
        scale = std::min(scale,
                         (kv + static_cast<double>(std::max<std::int64_t>(0, mine.free()))) / kv);
    }
  }
  const std::size_t document =
      workload.document_tokens > 0 ? budget.bytes_for(workload.document_tokens) : 0;
  const double all = static_cast<double>(document) +
                     static_cast<double>(workload.n_sequences) *
                         static_cast<double>(budget.bytes_for(workload.tail_tokens));
  const double limit = std::min(all * std::max(1.0, scale), 0x1p62);
  budget.limit_bytes = std::min(budget.limit_bytes, static_cast<std::size_t>(limit));
  return config;
}

std::string summary(const JobPlan& job, const ModelSpec& spec, const Workload& workload) {
  const Plan& plan = *job.plan;
  const auto bytes = memory_of(plan, spec, *job.cluster, as_planned(workload, plan));
  std::string text = fmt::format(
      "  plan {}: {} of {}, {}; documents of up to {} tokens in chunks of {}\n", plan_hash(plan),
      plural(plan.replicas.size(), "replica"), plural(plan.replicas.front().stages.size(), "stage"),
      plural(job.cluster->ranks.size(), "rank"), workload.document_tokens, plan.chunk_len);
  constexpr std::size_t kMostLines = 32;
  std::size_t n_lines = 0;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    for (const Stage& stage : plan.replicas[r].stages) {
      for (std::size_t i = 0; i < stage.ring.size(); ++i) {
        if (++n_lines > kMostLines) continue;
        const RankBytes& mine = bytes[static_cast<std::size_t>(stage.ring[i].value)];
        const std::string replica = plan.replicas.size() > 1 ? fmt::format("replica {}, ", r) : "";
        text += fmt::format(
            "  rank {} on {}: {}layers {}-{}, {:.3g}% of the tokens; weights {}, KV up to {}, free "
            "{}\n",
            stage.ring[i].value, job.cluster->rank(stage.ring[i]).host, replica, stage.layers.begin,
            stage.layers.end - 1,
            100 * static_cast<double>(stage.token_share[i]) /
                static_cast<double>(Stage::kTokenShareTotal),
            format_byte_size(mine.weights), format_byte_size(mine.kv_retrieval + mine.kv_streaming),
            format_byte_size(mine.free()));
      }
    }
  }
  if (n_lines > kMostLines)
    text += fmt::format("  and {} more; --verbose shows them all\n", n_lines - kMostLines);
  return text;
}

}  // namespace longhaul
