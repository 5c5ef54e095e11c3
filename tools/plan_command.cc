#include "tools/plan_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/print_stderr.h"
#include "cluster/comm/mpi_environment.h"
#include "model/model_folder.h"
#include "partition/check_plan.h"
#include "partition/explain.h"
#include "partition/make_plan.h"
#include "partition/plan_json.h"
#include "partition/weight_bytes.h"
#include "tools/bench/shapes.h"
#include "tools/flags/choice_flag.h"
#include "tools/flags/count_flag.h"
#include "tools/flags/environment.h"
#include "tools/flags/flag_use.h"
#include "tools/flags/given_flags.h"
#include "tools/flags/job_flags.h"
#include "tools/flags/sizes.h"
#include "tools/identify/training_room.h"
#include "tools/job/check_in.h"
#include "tools/job/exit_status.h"
#include "tools/job/head_settings.h"
#include "tools/job/input_errors.h"
#include "tools/job/job.h"
#include "tools/job/plan_files.h"
#include "tools/job/plan_job.h"

namespace longhaul {
namespace {

struct PlanFlags {
  std::string model;
  std::string shape;  // instead of a model
  JobConfig job;
  HeadSettings heads;
  std::int64_t n_ranks = 1;
  std::int64_t ranks_per_host = 1;
  std::optional<std::int64_t> memory_bytes;  // of each rank
  std::optional<std::int64_t> document_tokens;
  std::int64_t tail_tokens = Workload{}.tail_tokens;
  std::string json;
  std::optional<std::int64_t> identify_tokens;  // of the longest text
  std::int64_t identify_answer = 1000;          // tokens of it that are compared
  IdentifyMethod identify_method = IdentifyMethod::kGates;
};

void add_plan_model_flags(CLI::App& app, PlanFlags& f) {
  CLI::Option* model =
      app.add_option(
             "-m,--model", f.model,
             "Model: a Hugging Face folder, or org/name[@revision] from the local hub cache")
          ->type_name("MODEL");
  app.add_option("--shape", f.shape,
                 fmt::format("Instead of a model the shape of a published one ({}), or of a "
                             "config.json",
                             fmt::join(bench::shape_names(), ", ")))
      ->type_name("SHAPE")
      ->excludes(model);
}

// "64" is 64 bytes, and hardly what was meant.
std::int64_t memory_of_a_rank(const std::string& text) {
  const auto bytes = static_cast<std::int64_t>(parse_byte_size(text, "--memory"));
  require(bytes >= kLeastMemory, "--memory " + too_little_memory(text, bytes));
  return bytes;
}

void add_plan_cluster_flags(CLI::App& app, PlanFlags& f) {
  const auto count = CLI::Range(std::int64_t{1}, std::int64_t{1} << 20);
  const std::string group = "Cluster (under mpirun or srun, the ranks there are unless described)";
  CLI::Option* cluster = add_cluster_flag(app, f.job, group);
  app.add_option("--ranks", f.n_ranks, "Without a file, with --memory: so many equal ranks")
      ->check(count)
      ->excludes(cluster)
      ->capture_default_str()
      ->group(group);
  app.add_option_function<std::string>(
         "--memory", [&f](const std::string& text) { f.memory_bytes = memory_of_a_rank(text); },
         "Memory of each of them, such as 16G")
      ->type_name("SIZE")
      ->excludes(cluster)
      ->group(group);
  app.add_option("--ranks-per-host", f.ranks_per_host, "How many of them share a host")
      ->check(count)
      ->excludes(cluster)
      ->capture_default_str()
      ->group(group);
  add_layout_flags(app, f.job, group);
  add_device_flags(app, f.job, group);
}

void add_workload_flags(CLI::App& app, PlanFlags& f) {
  const std::string group = "Work";
  const auto tokens = CLI::Range(std::int64_t{0}, Workload::kMaxTokens);
  app.add_option("--document-tokens", f.document_tokens,
                 "Longest document, such as 128K (default: what the model can read)")
      ->transform(with_letters())
      ->check(tokens)
      ->group(group);
  app.add_option("--request-tokens", f.tail_tokens, "Longest question and answer together")
      ->transform(with_letters())
      ->check(tokens)
      ->capture_default_str()
      ->group(group);
  app.add_option("--identify-tokens", f.identify_tokens,
                 "Instead, what `longhaul identify` takes with a text of so many tokens")
      ->transform(with_letters())
      ->check(tokens)
      ->group(group);
  app.add_option("--identify-answer", f.identify_answer,
                 "How many of these are questions and answers, which are compared")
      ->transform(with_letters())
      ->check(tokens)
      ->capture_default_str()
      ->group(group);
  add_choice(app, "--identify-method", f.identify_method, identify_methods(),
             "Its --method; gates: of a step")
      ->group(group);
  add_parallel_flag(app, f.job, group);
  add_lookup_flags(app, f.job, group);
  add_chunk_flag(app, f.job, group);
  add_reproducible_flag(app, f.job, group);
  add_head_flags(app, f.heads, "Retrieval and streaming heads");
  const std::string memory = "Memory";
  add_cache_flags(app, f.job, memory);
  add_weights_flag(app, f.job, memory);
}

// Throws kInvalidArgument for flags of the command line that would have no effect.
void check_flags(const CLI::App& app, const PlanFlags& flags) {
  for (const char* name : {"--ranks", "--ranks-per-host"}) {
    require(flags.memory_bytes || !is_on_command_line(app, name),
            fmt::format("{} is for equal ranks that are described: give their --memory too, such "
                        "as --memory 16G",
                        name));
  }
  for (const char* name : {"--identify-answer", "--identify-method"}) {
    require(flags.identify_tokens || !is_on_command_line(app, name),
            fmt::format("{} says how longhaul identify is planned: give --identify-tokens too, "
                        "such as --identify-tokens 32K",
                        name));
  }
  for (const char* name :
       {"--json", "--document-tokens", "--request-tokens", "--parallel", "--draft-max",
        "--prompt-lookup-min", "--chunk-len", "--reproducible", "--stages", "--replicas",
        "--decode-balance", "--head-profile", "--retrieval-ratio", "--sink", "--recent", "--policy",
        "--full-heads", "--streaming-heads", "--cache-type-v"}) {
    require(!flags.identify_tokens || !is_on_command_line(app, name),
            fmt::format("{} is for plans, and with --identify-tokens none is made: leave one of "
                        "them out",
                        name));
  }
  refuse_without_effect(
      app, std::vector<FlagUse>{
               {"--device", flags.job.cluster.empty(), "--cluster says what each rank computes on"},
               {"--threads", flags.job.cluster.empty() && !flags.memory_bytes,
                "it is for ranks that there are, whose speed is measured, and these are "
                "described"}});
}

// Memory is that of the device: with GPUs one for each rank.
ClusterSpec cluster_of_equals(const PlanFlags& flags) {
  ClusterSpec cluster = equal_cluster(flags.n_ranks, *flags.memory_bytes, flags.ranks_per_host);
  if (flags.job.device != DeviceChoice::kCuda) return cluster;
  for (std::size_t i = 0; i < cluster.ranks.size(); ++i) {
    RankSpec& rank = cluster.ranks[i];
    rank.device = Device::kCuda;
    rank.gpu = static_cast<int>(static_cast<std::int64_t>(i) % flags.ranks_per_host);
    rank.gflops = kDefaultGpuGflops;
    rank.memory_gb_per_s = kDefaultGpuGbPerS;
  }
  return cluster;
}

ClusterSpec cluster_of(const PlanFlags& flags, JobRanks& ranks, ModelSource& model) {
  if (!flags.job.cluster.empty()) return read_cluster(flags.job.cluster);
  if (flags.memory_bytes) return cluster_of_equals(flags);
  require(started_by_mpi_launcher(),
          "which cluster? Give --cluster FILE, or --ranks N --memory 16G for equal ranks, or start "
          "the ranks with mpirun or srun");
  return ranks.find_cluster(model);
}

// Without weights where only a shape is given: a plan needs none.
std::shared_ptr<ModelSource> open_source(const PlanFlags& flags) {
  if (!flags.shape.empty()) {
    const ModelSpec spec = bench::model_shape(flags.shape).spec;
    const DType in_memory = Workload{.weight_dtype = flags.job.weights}.weights(spec);
    return std::make_shared<ModelSource>(spec, in_memory, [](Extent, const DeviceId&) -> Weights {
      throw Error(ErrorCode::kInternal, "plan: a shape has no weights");
    });
  }
  require(!flags.model.empty(),
          "which model? Give -m MODEL, or --shape NAME, such as --shape llama-3.1-8b");
  return source_of(open_model_folder(flags.model, hub_cache()), flags.job);
}

PlanRequest read_request(const PlanFlags& flags, JobRanks& ranks) {
  require_whole_pages(flags.heads.methods, usual_block_size(flags.job));
  const auto model = open_source(flags);
  PlanRequest request;
  request.spec = model->spec();
  request.cluster = cluster_of(flags, ranks, *model);
  ChosenHeads heads = choose_heads(flags.heads, request.spec, model->folder());
  request.heads = heads.table;
  if (flags.job.lookup.most > 0) require_can_take_back(request.heads, "--draft-max");
  request.workload = formats_of(flags.job, model->weight_dtype());
  require_cacheable(request.heads, request.workload.kv(request.spec));
  Workload& workload = request.workload;
  workload.tail_tokens = flags.tail_tokens;
  workload.document_tokens = flags.document_tokens.value_or(
      std::max<std::int64_t>(0, request.spec.max_seq_len - flags.tail_tokens));
  workload.n_sequences = flags.job.n_parallel;
  request.options = plan_options(flags.job);
  if (flags.job.chunk_len)
    workload.chunk_len = *flags.job.chunk_len;
  else
    choose_chunks_by_cost(request);
  if (flags.heads.methods.empty()) request.options.profile = std::move(heads.profile);
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
                                  {"transfers", Json(bytes.transfers)},
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

// What `longhaul identify` would take there: every rank has all weights.
int plan_identify(const PlanFlags& flags, const PlanRequest& request) {
  const Workload& workload = request.workload;
  const ModelSpec& spec = request.spec;
  const IdentifyPart part = part_of(flags.identify_method);
  const TrainingShape shape{.window = {},
                            .n_tokens = *flags.identify_tokens,
                            .n_answer = std::min(flags.identify_answer, *flags.identify_tokens),
                            .block_size = workload.block_size,
                            .n_ranks = request.cluster.n_ranks(),
                            .kv_value_bytes = workload.k_type == KvType::kBf16 ? 2U : 4U,
                            .weight_dtype = workload.weights(spec),
                            .device = request.cluster.has_gpus() ? Device::kCuda : Device::kCpu};
  const TrainingRoom room{
      .weight_bytes = stage_weight_bytes(spec, shape.weight_dtype, {0, spec.n_layers}),
      .usable_bytes = least_usable_bytes(request.cluster)};
  double gflops = 0;
  for (const Rank rank : IdRange<Rank>(request.cluster.n_ranks()))
    gflops += request.cluster.rank(rank).gflops;
  const double flops = part == IdentifyPart::kTraining ? training_flops(spec, shape).total()
                                                       : finder_flops(part, spec, shape);
  fmt::print("{}{}{:.1f} s at least, at {:.0f} GFLOP/s{}\n", describe_cost(part, spec, shape),
             describe_room(part, spec, shape, room, {"--identify-tokens"}), flops / (gflops * 1e9),
             gflops, request.cluster.speeds_known ? "" : " (taken for granted)");
  return missing_bytes(part, spec, shape, room) == 0 ? kExitDone : kExitDoesNotFit;
}

constexpr std::int64_t kManyRanks = 10'000;  // planned in a few seconds

int run_plan(const CLI::App& app, const PlanFlags& flags, JobRanks& ranks) {
  check_flags(app, flags);
  const PlanRequest request = read_request(flags, ranks);
  if (flags.identify_tokens) return plan_identify(flags, request);
  if (request.cluster.n_ranks() > kManyRanks)
    print_stderr("longhaul: layouts of {} ranks are compared; that can take minutes\n",
                 request.cluster.n_ranks());
  const PlanResult result = make_plan(request);
  if (const auto* refusal = std::get_if<NotFitting>(&result)) {
    print(flags, explain(*refusal, request.cluster), refusal_to_json(*refusal));
    return kExitDoesNotFit;
  }
  const Plan& plan = std::get<Plan>(result);
  const Workload workload = as_planned(request.workload, plan);
  const auto violations = check_plan(plan, request.spec, request.cluster, workload);
  if (!violations.empty()) {
    throw Error(ErrorCode::kInternal,
                fmt::format("the planner made a wrong plan, please report it: {}",
                            fmt::join(violations, "; ")));
  }
  std::string text = explain(plan, request.spec, request.cluster, workload);
  const std::string sets = explain_instruction_sets(ranks.instruction_sets);
  if (!sets.empty()) text += fmt::format("  {}\n", sets);
  print(flags, text, plan_to_json(plan));
  return kExitDone;
}

}  // namespace

Command add_plan_command(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("plan", "Show what would run where, whether it fits, and how long");
  const auto flags = std::make_shared<PlanFlags>();
  flags->job.n_parallel = Workload{}.n_sequences;
  add_plan_model_flags(*app, *flags);
  add_plan_cluster_flags(*app, *flags);
  add_workload_flags(*app, *flags);
  app->add_option("--json", flags->json, "Write the plan to this file too; -: only to stdout")
      ->type_name("FILE");
  name_environment_variables(*app);
  app->footer(R"(Examples:
  Does a million tokens fit on 8 ranks with 80 GiB each?
    longhaul plan -m models/llama --ranks 8 --memory 80G --document-tokens 1000000
  For a published shape, on GPUs:
    longhaul plan --shape llama-3.1-8b --ranks 2 --memory 80G --device cuda
  The same with half of the heads as streaming heads, on a described cluster:
    longhaul plan -m models/llama --cluster cluster.toml --document-tokens 1000000 \
      --head-profile profile --retrieval-ratio 0.5 --json plan.json

  For the ranks that a job would have:
    mpirun -n 8 longhaul plan -m models/llama --document-tokens 1000000

The model's weights may be missing: its config.json is enough.
)" + exit_status_help());
  return {app, [app, flags] {
            // The ranks that there are, not those that a file describes.
            JobConfig config;
            config.device = flags->job.device;
            config.n_threads = flags->job.n_threads;
            config.flags_given = given_flags(*app);
            return run_job(
                config, [&] { return open_source(*flags); },
                [&](JobRanks& ranks) { return run_plan(*app, *flags, ranks); });
          }};
}

}  // namespace longhaul
