#include "tools/plan_command.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/model_folder.h"
#include "partition/check_plan.h"
#include "partition/explain.h"
#include "partition/make_plan.h"
#include "partition/plan_json.h"
#include "tools/byte_size.h"
#include "tools/cache_types.h"
#include "tools/environment.h"
#include "tools/exit_status.h"
#include "tools/job_plan.h"
#include "tools/weights_flag.h"

namespace longhaul {
namespace {

struct PlanFlags {
  std::string model;
  std::filesystem::path cluster;
  std::int64_t n_ranks = 1;
  std::int64_t ranks_per_host = 1;
  std::string memory;
  Workload workload;
  std::optional<std::int64_t> document_tokens;
  CacheTypeFlags cache_types;
  std::string weights = "auto";
  std::filesystem::path head_profile;
  std::optional<double> retrieval_ratio;
  std::optional<std::int64_t> sink;
  std::optional<std::int64_t> recent;
  std::optional<std::int64_t> n_stages;
  std::optional<std::int64_t> n_replicas;
  std::string balance = "total";
  std::string json;
};

void add_cluster_flags(CLI::App& app, PlanFlags& f) {
  const auto count = CLI::Range(std::int64_t{1}, std::int64_t{1} << 20);
  const std::string group = "Cluster";
  auto* cluster = app.add_option("--cluster", f.cluster,
                                 "TOML file of nodes, memory, speeds and links (the form is in "
                                 "partition/cluster_spec.h)")
                      ->group(group);
  app.add_option("--ranks", f.n_ranks, "Without a file: so many equal ranks")
      ->check(count)
      ->excludes(cluster)
      ->capture_default_str()
      ->group(group);
  app.add_option("--memory", f.memory, "Memory of each of them, such as 16G")
      ->excludes(cluster)
      ->group(group);
  app.add_option("--ranks-per-host", f.ranks_per_host, "How many of them share a host")
      ->check(count)
      ->excludes(cluster)
      ->capture_default_str()
      ->group(group);
  app.add_option("--stages", f.n_stages, "Stages of each replica (default: the fewest that fit)")
      ->check(count)
      ->group(group);
  app.add_option("--replicas", f.n_replicas, "Replicas (default: as many as make sense)")
      ->check(count)
      ->group(group);
  app.add_option("--decode-balance", f.balance,
                 "total: ranks that read many KV bytes compute fewer columns; phases: columns by "
                 "reading speed alone")
      ->check(CLI::IsMember({"total", "phases"}))
      ->capture_default_str()
      ->group(group);
}

void add_workload_flags(CLI::App& app, PlanFlags& f) {
  const std::string group = "Work";
  const auto tokens = CLI::Range(std::int64_t{0}, Workload::kMaxTokens);
  app.add_option("--document-tokens", f.document_tokens,
                 "Longest document (default: what the model can read)")
      ->check(tokens)
      ->group(group);
  app.add_option("--request-tokens", f.workload.tail_tokens, "Longest question and answer together")
      ->check(tokens)
      ->capture_default_str()
      ->group(group);
  app.add_option("--parallel", f.workload.n_sequences, "Requests answered at the same time")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}))
      ->capture_default_str()
      ->group(group);
  app.add_option("-b,--chunk-len,--batch-size", f.workload.chunk_len,
                 "Tokens of one prefill step, over all ranks of a ring")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 26))
      ->capture_default_str()
      ->group(group);
  const std::string heads = "Retrieval and streaming heads";
  auto* profile =
      app.add_option("--head-profile", f.head_profile,
                     "Folder with full_attention_heads.tsv and config.json (DuoAttention); without "
                     "it every head keeps every token")
          ->group(heads);
  app.add_option("--retrieval-ratio", f.retrieval_ratio, "Share of heads that keep every token")
      ->check(CLI::Range(0.0, 1.0))
      ->needs(profile)
      ->group(heads);
  app.add_option("--sink", f.sink, "First tokens that streaming heads keep")
      ->check(tokens)
      ->needs(profile)
      ->group(heads);
  app.add_option("--recent", f.recent, "Last tokens that streaming heads keep")
      ->check(tokens)
      ->needs(profile)
      ->group(heads);
  const std::string memory = "Memory";
  add_cache_type_options(app, f.cache_types, memory);
  add_weights_flag(app, f.weights, memory);
  app.add_option("--block-size", f.workload.block_size, "Tokens of a cache block")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}))
      ->capture_default_str()
      ->group(memory);
}

ClusterSpec cluster_of(const PlanFlags& flags) {
  if (!flags.cluster.empty()) return read_cluster(flags.cluster);
  require(!flags.memory.empty(),
          "which cluster? Give --cluster FILE, or --ranks N --memory 16G for equal ranks");
  const auto memory = static_cast<std::int64_t>(parse_byte_size(flags.memory));
  return equal_cluster(flags.n_ranks, memory, flags.ranks_per_host);
}

void read_roles(const PlanFlags& flags, PlanRequest& request) {
  const ModelSpec& spec = request.spec;
  if (flags.head_profile.empty()) {
    request.roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
    return;
  }
  HeadProfile profile = read_head_profile(flags.head_profile);
  check_profile_fits(profile, spec);
  profile.sink = flags.sink.value_or(profile.sink);
  profile.recent = flags.recent.value_or(profile.recent);
  request.roles = choose_roles(profile, flags.retrieval_ratio);
  request.options.profile = std::move(profile);
}

PlanRequest read_request(const PlanFlags& flags) {
  const ModelFolder folder(find_model_folder(flags.model, hub_cache()));
  PlanRequest request;
  request.spec = folder.config().spec;
  request.cluster = cluster_of(flags);
  request.workload = flags.workload;
  request.workload.document_tokens = flags.document_tokens.value_or(
      std::max<std::int64_t>(0, request.spec.max_seq_len - flags.workload.tail_tokens));
  request.workload.weight_dtype = weights_in_memory(flags.weights, folder);
  const DType weights = request.workload.weights(request.spec);
  request.workload.k_type = cache_type(flags.cache_types.k, weights);
  request.workload.v_type = cache_type(flags.cache_types.v, weights);
  request.options.n_stages = flags.n_stages;
  request.options.n_replicas = flags.n_replicas;
  request.options.balance =
      flags.balance == "phases" ? DecodeBalance::kEachPhase : DecodeBalance::kTotalBytes;
  read_roles(flags, request);
  return request;
}

Json refusal_to_json(const NotFitting& refusal) {
  JsonArray ranks;
  for (const RankBytes& bytes : refusal.bytes) {
    ranks.emplace_back(JsonObject{{"limit", Json(bytes.limit)},
                                  {"weights", Json(bytes.weights)},
                                  {"kv_retrieval", Json(bytes.kv_retrieval)},
                                  {"kv_streaming", Json(bytes.kv_streaming)},
                                  {"activations", Json(bytes.activations)},
                                  {"ring_buffers", Json(bytes.ring_buffers)},
                                  {"headroom", Json(bytes.headroom)}});
  }
  JsonArray changes;
  for (const std::string& change : refusal.changes) changes.emplace_back(change);
  return Json(JsonObject{{"format", Json("longhaul-plan-refusal")},
                         {"version", Json(1)},
                         {"missing_bytes", Json(refusal.missing_bytes)},
                         {"rank_bytes", Json(std::move(ranks))},
                         {"changes", Json(std::move(changes))}});
}

// Text to stdout and JSON to its file; with --json - the JSON alone goes to stdout.
void print(const PlanFlags& flags, const std::string& text, const Json& json) {
  if (flags.json == "-") {
    fmt::print("{}\n", to_text(json));
    return;
  }
  fmt::print("{}", text);
  if (!flags.json.empty()) replace_file(flags.json, to_text(json) + "\n");
}

int run_plan(const PlanFlags& flags) {
  const PlanRequest request = read_request(flags);
  const PlanResult result = make_plan(request);
  if (const auto* refusal = std::get_if<NotFitting>(&result)) {
    print(flags, explain(*refusal, request.cluster), refusal_to_json(*refusal));
    return kExitDoesNotFit;
  }
  const Plan& plan = std::get<Plan>(result);
  const auto violations = check_plan(plan, request.spec, request.cluster, request.workload);
  if (!violations.empty()) {
    throw Error(ErrorCode::kInternal,
                fmt::format("the planner made a wrong plan, please report it: {}",
                            fmt::join(violations, "; ")));
  }
  print(flags, explain(plan, request.spec, request.cluster, request.workload), plan_to_json(plan));
  return kExitDone;
}

}  // namespace

Command add_plan_command(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("plan", "Show what would run where, whether it fits, and how long");
  const auto flags = std::make_shared<PlanFlags>();
  app->add_option("-m,--model", flags->model,
                  "Model: a Hugging Face folder (weights may be missing), or org/name[@revision] "
                  "from the local hub cache")
      ->required();
  add_cluster_flags(*app, *flags);
  add_workload_flags(*app, *flags);
  app->add_option("--json", flags->json, "Write the plan to this file too; -: only to stdout");
  name_environment_variables(*app);
  app->footer(R"(Examples:
  Does a million tokens fit on 8 ranks with 80 GiB each?
    longhaul plan -m models/llama --ranks 8 --memory 80G --document-tokens 1000000
  The same with half of the heads as streaming heads, on a described cluster:
    longhaul plan -m models/llama --cluster cluster.toml --document-tokens 1000000 \
      --head-profile profile --retrieval-ratio 0.5 --json plan.json

Exit status: 0 fits, 2 wrong flags, 3 does not fit, 5 bad model, profile or cluster file.)");
  return {app, [flags] { return run_plan(*flags); }};
}

}  // namespace longhaul
