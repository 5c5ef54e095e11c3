#include "tools/bench/bench_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "base/error.h"
#include "partition/workload.h"
#include "tools/bench/number_ranges.h"
#include "tools/bench/shapes.h"
#include "tools/flags/choice_flag.h"
#include "tools/flags/commands.h"
#include "tools/flags/count_flag.h"
#include "tools/flags/environment.h"
#include "tools/flags/job_flags.h"
#include "tools/job/exit_status.h"

namespace longhaul::bench {
namespace {

void add_model_flags(CLI::App& app, BenchFlags& f) {
  const std::string group = "Model (one of these)";
  auto* model =
      app.add_option("-m,--model", f.model,
                     "A Hugging Face folder, or org/name[@revision] from the local hub cache")
          ->type_name("MODEL")
          ->group(group);
  auto* shape = app.add_option("--shape", f.shape,
                               fmt::format("Random weights of a published shape ({}), or of a "
                                           "config.json or a folder with one",
                                           fmt::join(shape_names(), ", ")))
                    ->type_name("SHAPE")
                    ->excludes(model)
                    ->group(group);
  app.add_option("--layers", f.n_layers,
                 "Only the first so many layers of the shape; the table says so")
      ->check(kCount)
      ->needs(shape)
      ->group(group);
  add_weights_flag(app, f.job, group);
  app.get_option("--no-mmap")->needs(model);  // weights of a shape are in this memory anyway
  app.get_option("--fp8-activations")->needs(model);  // random weights are multiplied as they are
}

void add_test_flags(CLI::App& app, BenchFlags& f) {
  const std::string group = "Tests (numbers between commas, or 0-4096+1024, or 1K-64K*2; 0: none)";
  app.add_option("-p,--n-prompt", f.n_prompt, "Tokens of prompts: ppN")
      ->type_name("LIST")
      ->capture_default_str()
      ->group(group);
  app.add_option("-n,--n-gen", f.n_gen, "Tokens to generate: tgN")
      ->type_name("LIST")
      ->capture_default_str()
      ->group(group);
  app.add_option("--pg", f.pairs,
                 "PROMPT,GENERATED: one after the other; also -pg; may be repeated")
      ->type_name("PROMPT,GENERATED")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("-d,--n-depth", f.n_depth, "Tokens that are in the cache before a test starts")
      ->type_name("LIST")
      ->capture_default_str()
      ->group(group);
  app.add_option("--parallel", f.n_sequences,
                 "Sequences that generate at the same time, after the same depth: tgN xS")
      ->type_name("LIST")
      ->capture_default_str()
      ->group(group);
  app.add_option("--quote", f.n_quoted,
                 "Tokens to generate that repeat a passage of the depth, with guesses by lookup: "
                 "quoteN; depths that are shorter are left out")
      ->type_name("LIST")
      ->capture_default_str()
      ->group(group);
  app.add_option("--draft-max", f.draft_max, "Most guesses of a step of --quote")
      ->check(CLI::Range(std::int64_t{1}, Workload::kRowsWithGuesses - 1))
      ->capture_default_str()
      ->group(group);
  app.add_option("-r,--repetitions", f.n_repetitions, "Runs of each test")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--no-warmup", f.no_warmup, "Do not run each test once before it counts")
      ->group(group);
}

void add_engine_flags(CLI::App& app, BenchFlags& f) {
  f.job.n_replicas = 1;  // all ranks work on the same tokens
  f.job.after_loss = "run the same command again";
  const std::string engine = "Engine";
  add_device_flag(app, f.job, engine);
  app.add_option("-t,--threads", f.threads,
                 "Threads of each rank, one number or several (0: OMP_NUM_THREADS, else all cores, "
                 "divided among the host's ranks)")
      ->type_name("LIST")
      ->capture_default_str()
      ->group(engine);
  add_chunk_flag(app, f.job, engine);
  add_reproducible_flag(app, f.job, engine);
  add_cache_flags(app, f.job, engine);
  add_step_timeout_flag(app, f.job, engine);
  add_rank_flags(app, f.job);
  add_head_flags(app, f.heads,
                 "Retrieval and streaming heads (a ratio without a profile: heads scattered at "
                 "random, with 128 first and 256 last tokens)");
}

void add_output_flags(CLI::App& app, BenchFlags& f) {
  app.add_option("-o,--output", f.output, "md, csv, json or jsonl")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
  add_choice<WorkClock>(
      app, "--clock", f.clock, {{"wall", WorkClock::kWall}, {"cpu", WorkClock::kProcessCpu}},
      "wall, or cpu: CPU time of the one thread of one rank, which a busy machine spoils less");
  app.add_flag("--no-progress", f.no_progress, "Show no progress on stderr");
}

}  // namespace

void add_bench_flags(CLI::App& app, BenchFlags& flags) {
  add_model_flags(app, flags);
  add_test_flags(app, flags);
  add_engine_flags(app, flags);
  add_output_flags(app, flags);
  name_environment_variables(app);
  app.footer(
      R"(As llama-bench: pp is a prompt's tokens per second, tg generated tokens per second, "@ d4096"
with so many tokens in the cache already; means and standard deviations over the repetitions, wall
time. Tokens are random; tokenising is not measured, picking the likeliest token is.

of bound: speed over what this machine allows at best. A prompt's bound is its arithmetic over the
rate of multiply-adds from registers; a generated token's is the bytes of weights and cache that it
must read over the rate of reading 512 MiB. Both rates are measured by the ranks themselves, with the
same threads, right before and after each repetition. Of several sequences the weights are read once
for all, and each reads a cache. The bound of quoteN is that of tgN, with a step for every token: what is
beyond 1 guesses gained, and t/step says by how many tokens a step. With several ranks, all measure at the same
time and the bound is what they allow together: work split perfectly, and no time to exchange it. Models that fit the caches can exceed 1. On a
GPU the rates are that of cuBLAS's bf16 products, twice that for int8, and that of a kernel that reads
1.6 GiB.

Examples:
  longhaul bench -m models/llama
  longhaul bench --shape llama-3.1-8b --layers 4 -p 512 -n 32 -d 0,4K,16K
  longhaul bench --shape llama-3.2-1b --layers 4 -p 0 -n 16 -d 0,8K,64K --parallel 1,2,8,32
  longhaul bench --shape llama-3.2-1b --layers 4 -p 0 -n 200 --quote 200 -d 8K
  longhaul bench --shape llama-3.2-1b --retrieval-ratio 0.25 -d 32K -o json
  longhaul bench --shape llama-3.1-8b --device cuda --weights int8 -ctk int4 -ctv int4 -d 128K
  mpirun longhaul bench --shape llama-3.1-8b -d 128K

)" + exit_status_help());
}

void check_bench_flags(const BenchFlags& f) {
  require(!f.model.empty() || !f.shape.empty(),
          "which model? Give -m MODEL, or --shape NAME for random weights, such as --shape "
          "llama-3.2-1b");
  require(f.job.device == DeviceChoice::kCpu || f.clock == WorkClock::kWall,
          "--clock cpu counts the time of a CPU: a GPU's is --clock wall");
  const bool has_streaming = !f.heads.profile.empty() || f.heads.retrieval_ratio;
  require((!f.heads.sink && !f.heads.recent) || has_streaming,
          "--sink and --recent are of streaming heads: give --retrieval-ratio or --head-profile");
}

std::vector<ModelTest> tests_of(const BenchFlags& flags) {
  const auto prompts = parse_ranges(flags.n_prompt, "--n-prompt");
  const auto generations = parse_ranges(flags.n_gen, "--n-gen");
  const auto parallel = parse_ranges(flags.n_sequences, "--parallel");
  const auto quotes = parse_ranges(flags.n_quoted, "--quote");
  require(std::find(parallel.begin(), parallel.end(), 0) == parallel.end(),
          "--parallel: one sequence generates at least");
  std::vector<ModelTest> tests;
  for (const std::int64_t depth : parse_ranges(flags.n_depth, "--n-depth")) {
    for (const std::int64_t n : prompts) {
      if (n > 0) tests.push_back({.n_prompt = n, .n_depth = depth});
    }
    for (const std::int64_t n : generations) {
      for (const std::int64_t s : parallel) {
        if (n > 0) tests.push_back({.n_gen = n, .n_depth = depth, .n_sequences = s});
      }
    }
    for (const std::int64_t n : quotes) {
      if (n > 0 && n <= depth)
        tests.push_back({.n_gen = n, .n_depth = depth, .draft_max = flags.draft_max});
    }
    for (const std::string& pair : flags.pairs) {
      const auto [n_prompt, n_gen] = parse_pair(pair, "-pg");
      tests.push_back({.n_prompt = n_prompt, .n_gen = n_gen, .n_depth = depth});
    }
  }
  require(
      !tests.empty(),
      "nothing to measure: -p and -n are 0, there is no -pg, and no --quote that a depth holds");
  return tests;
}

}  // namespace longhaul::bench
