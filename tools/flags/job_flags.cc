#include "tools/flags/job_flags.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "partition/workload.h"
#include "tools/flags/cache_method_words.h"
#include "tools/flags/choice_flag.h"
#include "tools/flags/count_flag.h"
#include "tools/flags/method_flag.h"
#include "tools/flags/number_flag.h"
#include "tools/flags/seconds_flag.h"
#include "tools/flags/sizes.h"

namespace longhaul {
void add_model_flag(CLI::App& app, std::string& model) {
  app.add_option("-m,--model", model,
                 "Model: a Hugging Face folder, or org/name[@revision] from the local hub cache")
      ->type_name("MODEL")
      ->required();
}

void add_device_flag(CLI::App& app, JobConfig& job, const std::string& group) {
  add_choice<DeviceChoice>(
      app, "--device", job.device,
      {{"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}, {"auto", DeviceChoice::kAuto}},
      "What computes: cpu; cuda, a GPU for each rank of a host in turn; auto: "
      "GPUs where there are any")
      ->group(group);
}

void add_device_flags(CLI::App& app, JobConfig& job, const std::string& group) {
  add_device_flag(app, job, group);
  app.add_option("-t,--threads", job.n_threads,
                 "Threads of each rank (default: all cores of the host, divided "
                 "among its ranks)")
      ->check(CLI::Range(0, 4096))
      ->group(group);
}

void add_reproducible_flag(CLI::App& app, JobConfig& job, const std::string& group) {
  app.add_flag("--reproducible", job.reproducible,
               "Answers with the same bits on any number of ranks and threads, in any chunks and "
               "beside any requests, on one instruction set (docs/reproducible.md)")
      ->group(group);
}

void add_chunk_flag(CLI::App& app, JobConfig& job, const std::string& group) {
  app.add_option(
         "-b,--chunk-len,--batch-size", job.chunk_len,
         fmt::format("Tokens of one prefill step, over all ranks of a ring (default: of one rank "
                     "{}, on GPUs {}; of several by predicted time, near that for each of up to 4)",
                     default_chunk_len(1, Device::kCpu), default_chunk_len(1, Device::kCuda)))
      ->transform(with_letters())
      ->check(kCount)
      ->group(group);
}

void add_parallel_flag(CLI::App& app, JobConfig& job, const std::string& group) {
  app.add_option("--parallel", job.n_parallel, "Requests answered at the same time")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}))
      ->capture_default_str()
      ->group(group);
}

void add_lookup_flags(CLI::App& app, JobConfig& job, const std::string& group) {
  app.add_option("--draft-max,--draft,--num-speculative-tokens", job.lookup.most,
                 "Most tokens of an answer that a step guesses, from what followed its last ones "
                 "where they stood before in documents, prompt or answer; the answer stays the "
                 "same, and comes in fewer steps where it quotes (docs/prompt_lookup.md). 0: none")
      ->check(CLI::Range(std::int64_t{0}, Workload::kRowsWithGuesses - 1))
      ->capture_default_str()
      ->group(group);
  const CLI::Option* least = app.add_option("--prompt-lookup-min", job.lookup.least,
                                            "Last tokens that must have stood there, at least")
                                 ->check(CLI::Range(std::int64_t{1}, std::int64_t{16}))
                                 ->capture_default_str()
                                 ->group(group);
  app.final_callback([&job, least] {
    require(least->count() == 0 || job.lookup.most > 0,
            "--prompt-lookup-min is for guesses, and there are none: give --draft-max N too");
  });
}

void add_draft_model_flags(CLI::App& app, JobConfig& job, const std::string& group) {
  constexpr std::int64_t kUsualDraftMax = 8;
  CLI::Option* draft_model =
      app.add_option_function<std::string>(
             "--draft-model,--model-draft",
             [&job, most = app.get_option("--draft-max")](const std::string& model) {
               if (most->count() == 0) job.lookup.most = kUsualDraftMax;
               if (job.lookup.most > 0) job.draft_model = model;
             },
             fmt::format("A small model with the same tokens, as --model has it, that guesses "
                         "where nothing stood before; the answer stays the same "
                         "(docs/prompt_lookup.md). --draft-max is then {} unless given; with "
                         "--draft-max 0 this model is not used",
                         kUsualDraftMax))
          ->type_name("MODEL")
          ->group(group);
  app.add_option("--draft-context", job.draft_context,
                 "Tokens of the text that it reads, the newest")
      ->needs(draft_model)
      ->transform(with_letters())
      ->check(kCount)
      ->capture_default_str()
      ->group(group);
}

void add_kv_limit_flag(CLI::App& app, JobConfig& job, const std::string& group) {
  app.add_option_function<std::string>(
         "--kv-limit",
         [&job](const std::string& text) {
           job.kv_limit_bytes = parse_byte_size(text, "--kv-limit");
         },
         "Most memory of KV caches, such as 8G (default: none)")
      ->type_name("SIZE")
      ->group(group);
}

void add_weights_flag(CLI::App& app, JobConfig& job, const std::string& group) {
  add_choice<std::optional<DType>>(
      app, "--weights", job.weights,
      {{"auto", std::nullopt},
       {"f32", DType::kF32},
       {"bf16", DType::kBf16},
       {"int8", DType::kI8},
       {"int4", DType::kI4},
       {"fp8", DType::kF8E4m3},
       {"q8_0", DType::kI8},  // llama.cpp's names for types of so many bits
       {"q4_0", DType::kI4}},
      "Type of weights in memory; auto: the files'. int8 halves bf16's memory and reads, int4 (4.5 "
      "bits) almost halves them again; both quantise what enters a product to int8 "
      "(the embedding stays bf16). fp8 (e4m3, a scale for each 128 x 128) halves bf16's memory and "
      "quantises weights alone (embedding and lm_head stay bf16)")
      ->group(group);
  app.add_flag_callback(
         "--fp8-activations", [&job] { job.fp8_inputs = Fp8Inputs::kQuantised; },
         "Beside weights of fp8 in blocks of 128 x 128: what enters their products is rounded to "
         "fp8, too, with a scale for each 128 inputs of a row, as DeepSeek-V3 and its kind were "
         "trained; answers change a little. On GPUs that multiply fp8, products are then of fp8")
      ->group(group);
  app.add_flag_callback(
         "--no-mmap", [&job] { job.weight_files = WeightFiles::kCopied; },
         "Copy weights that products take as the files have them into this process's memory, "
         "instead of reading them where the files are mapped. Generation is a little faster, for "
         "memory has huge pages; but reading is longer at the start, and each process of a host "
         "has its own copy")
      ->group(group);
}

void add_verify_flags(CLI::App& app, JobConfig& job, const std::string& group) {
  app.add_flag(
         "--verify-weights", job.verify_weights,
         "Read the model's files whole first, and compare their SHA-256 with longhaul.sha256 in "
         "its folder (longhaul checksum makes it) or with what the hub said")
      ->group(group);
  app.add_option_function<std::string>(
         "--checksums",
         [&job](const std::string& file) {
           job.checksums = file;
           job.verify_weights = true;
         },
         "The same with the SHA-256 in this file, in the form of sha256sum")
      ->type_name("FILE")
      ->group(group);
}

void add_cache_type_flags(CLI::App& app, JobConfig& job, const std::string& group,
                          std::string_view as_auto) {
  // q8_0, q4_0 and q4_1 are llama.cpp's names for types of so many bits, fp8_e4m3 is vLLM's.
  const FlagWords<std::optional<KvType>> types = {
      {"auto", std::nullopt},    {"f32", KvType::kF32},   {"bf16", KvType::kBf16},
      {"int8", KvType::kInt8},   {"int4", KvType::kInt4}, {"q8_0", KvType::kInt8},
      {"q4_0", KvType::kInt4},   {"q4_1", KvType::kInt4}, {"kivi4", KvType::kKivi4},
      {"kivi2", KvType::kKivi2}, {"fp8", KvType::kFp8},   {"fp8_e4m3", KvType::kFp8}};
  add_choice(app, "--cache-type-k,--ctk", job.k_type, types,
             fmt::format("Type of cached keys: f32, bf16, int8 (q8_0), fp8 (fp8_e4m3, a scale for "
                         "each token), int4 (q4_0, q4_1), kivi4, kivi2 (KIVI's layout, the newest "
                         "block in f32); auto: as {}",
                         as_auto))
      ->group(group);
  add_choice(app, "--cache-type-v,--ctv", job.v_type, types, "Type of cached values")->group(group);
}

void add_cache_flags(CLI::App& app, JobConfig& job, const std::string& group) {
  add_cache_type_flags(app, job, group);
  app.add_option("--block-size", job.block_size, kBlockTokensHelp)
      ->transform(with_letters())
      ->check(kBlockTokens)
      ->default_str(std::to_string(usual_block_size(JobConfig{})))
      ->group(group);
}

void add_profile_flags(CLI::App& app, HeadSettings& heads, const std::string& group) {
  app.add_option("--head-profile", heads.profile,
                 "Folder with full_attention_heads.tsv and config.json (DuoAttention); without it "
                 "every head keeps every token")
      ->type_name("FOLDER")
      ->group(group);
  app.add_option("--retrieval-ratio", heads.retrieval_ratio,
                 "Share of heads that keep every token (default: those with a gate of 0.5 or more)")
      ->check(number_between(0.0, 1.0))
      ->group(group);
}

void add_head_flags(CLI::App& app, HeadSettings& heads, const std::string& group) {
  add_profile_flags(app, heads, group);
  app.add_option("--sink", heads.sink,
                 "First tokens that streaming heads keep (default: the profile's)")
      ->transform(with_letters())
      ->check(kFromZero)
      ->group(group);
  app.add_option("--recent", heads.recent,
                 "Last tokens that streaming heads keep (default: the profile's)")
      ->transform(with_letters())
      ->check(kCount)
      ->group(group);
  add_method_flag(app, "--policy", heads.methods.all, "What all heads keep: " + cache_method_help())
      ->group(group);
  add_method_flag(app, "--full-heads", heads.methods.full,
                  "The same for those that a head profile lets see every token")
      ->group(group);
  add_method_flag(app, "--streaming-heads", heads.methods.streaming,
                  "The same for its others, in place of its sinks and last tokens (razor)")
      ->group(group);
}

CLI::Option* add_cluster_flag(CLI::App& app, JobConfig& job, const std::string& group) {
  return app
      .add_option(
          "--cluster", job.cluster,
          "TOML file of nodes, memory, speeds and links (docs/clusters.md); without it the ranks "
          "find out themselves")
      ->type_name("FILE")
      ->group(group);
}

std::vector<CLI::Option*> add_layout_flags(CLI::App& app, JobConfig& job,
                                           const std::string& group) {
  return {app.add_option("--stages", job.n_stages,
                         "Stages of each replica (default: by predicted time)")
              ->check(kCount)
              ->group(group),
          app.add_option("--replicas", job.n_replicas, "Replicas (default: as many as make sense)")
              ->check(kCount)
              ->group(group),
          add_choice<DecodeBalance>(
              app, "--decode-balance", job.decode_balance,
              {{"total", DecodeBalance::kTotalBytes}, {"phases", DecodeBalance::kEachPhase}},
              "total: ranks that read many KV bytes compute fewer columns; phases: columns by "
              "reading speed alone")
              ->group(group)};
}

void add_network_flags(CLI::App& app, JobConfig& job, const std::string& group) {
  add_seconds(app, "--start-timeout", job.start_timeout, 1e6,
              "Seconds until all ranks must have come together")
      ->group(group);
  app.add_option("--interfaces", job.interfaces,
                 "Networks between the nodes that MPI, NCCL and the control connections use: names "
                 "and subnets, as in ib0,10.1.0.0/16 (default: all but those of containers)")
      ->type_name("LIST")
      ->group(group);
}

void add_rank_flags(CLI::App& app, JobConfig& job) {
  const std::string group = "Several ranks (under mpirun or srun every process is one)";
  app.add_option("--ranks", job.n_ranks, "Run N ranks as threads of this process (without mpirun)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}))
      ->group(group);
  add_cluster_flag(app, job, group);
  CLI::Option* plan =
      app.add_option("--plan", job.plan,
                     "Run this plan, written by longhaul plan --json, instead of making one")
          ->type_name("FILE")
          ->group(group);
  for (CLI::Option* option : add_layout_flags(app, job, group)) option->excludes(plan);
  add_choice<HistoryChoice>(app, "--history", job.history,
                            {{"auto", HistoryChoice::kByCost},
                             {"keys", HistoryChoice::kKeysTravel},
                             {"queries", HistoryChoice::kQueriesTravel}},
                            "What travels for retrieval heads over earlier chunks: keys, queries, "
                            "or what costs less")
      ->group(group);
  add_choice<GpuTransport>(app, "--gpu-transfers", job.gpu_transfers,
                           {{"nccl", GpuTransport::kNcclWherePossible},
                            {"copy-engines", GpuTransport::kCopyEnginesWherePossible}},
                           "What moves data between GPUs of one node: NCCL, or copy engines, which "
                           "have not been measured yet")
      ->group(group);
  add_seconds(app, "--dead-after", job.dead_after, 1e6,
              "Seconds of silence after which a rank counts as dead")
      ->group(group);
  add_network_flags(app, job, group);
  app.add_option("--control-address", job.control_address,
                 "Address of rank 0's node on which it takes the other nodes' control connections "
                 "(default: 127.0.0.1 on one node, else that of a network that all nodes share)")
      ->type_name("ADDRESS")
      ->group(group);
  app.add_option(
         "--trace", job.trace,
         "Write the work, transfers and waits of each rank's first chunks to this file, its "
         "number before the extension (trace.json: trace.0.json, ...), for Perfetto or "
         "chrome://tracing")
      ->type_name("FILE")
      ->group(group);
}

void add_step_timeout_flag(CLI::App& app, JobConfig& job, const std::string& group) {
  add_seconds(app, "--step-timeout", job.step_timeout, 1e7,
              "Seconds after which a step that has no result counts as hung, and a file, or the "
              "model's together, as one that does not come")
      ->group(group);
}

}  // namespace longhaul
