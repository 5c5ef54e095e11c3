#include "tools/run_options.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "coordinator/requests.h"
#include "tools/commands.h"
#include "tools/device_flag.h"
#include "tools/weights_flag.h"

namespace longhaul {
namespace {

const auto kCount =
    CLI::Range(std::int64_t{1}, std::int64_t{std::numeric_limits<std::int32_t>::max()});
const auto kFromZero =
    CLI::Range(std::int64_t{0}, std::int64_t{std::numeric_limits<std::int32_t>::max()});

void add_work_options(CLI::App& app, RunOptions& o) {
  app.add_option("-m,--model", o.model,
                 "Model: a Hugging Face folder, or org/name[@revision] from the local hub cache")
      ->required();
  const std::string batch = "Many requests";
  app.add_option("-i,--input-file", o.input,
                 "Requests, one JSON object per line (OpenAI Batch form, url /v1/completions).\n"
                 "Body fields: " +
                     accepted_body_fields())
      ->group(batch);
  app.add_option("-o,--output-file", o.output,
                 "Results, one line per finished request. Failed ones go to OUT.errors.jsonl. "
                 "Running the same command again continues where it stopped")
      ->group(batch);
  app.add_flag("--retry-errors", o.retry_errors, "Run failed requests of an earlier run again")
      ->group(batch);
  app.add_flag("--overwrite", o.overwrite, "Start over: results that are there are lost")
      ->group(batch);
  const std::string single = "One question";
  app.add_option("-p,--prompt", o.prompt, "The question; the answer goes to stdout as it grows")
      ->group(single);
  app.add_option("-f,--file", o.documents, "Text file(s) to stand before the prompt")
      ->group(single);
}

void add_generation_options(CLI::App& app, RunOptions& o) {
  const std::string group = "Answers (defaults for requests that say nothing themselves)";
  app.add_option("-n,--n-predict,--max-tokens", o.sampling.max_tokens,
                 "Most tokens of an answer (default: the model's max_new_tokens, else 256)")
      ->check(kFromZero)
      ->group(group);
  app.add_option("-c,--ctx-size,--max-model-len", o.ctx_size,
                 "Most tokens of documents, prompt and answer together (default: the model's)")
      ->check(kCount)
      ->group(group);
  app.add_option("--temp,--temperature", o.sampling.temperature,
                 "0 is greedy (default: generation_config.json if it samples, else 0)")
      ->group(group);
  app.add_option("--top-k", o.sampling.top_k, "Only the k likeliest tokens; 0 = off")
      ->check(kFromZero)
      ->group(group);
  app.add_option("--top-p", o.sampling.top_p, "Only the likeliest tokens of this total; 1 = off")
      ->group(group);
  app.add_option("--min-p", o.sampling.min_p,
                 "Only tokens at least this likely, relative to the likeliest; 0 = off")
      ->group(group);
  app.add_option("-s,--seed", o.sampling.seed, "Of random draws (default 0)")
      ->check(CLI::Range(std::uint64_t{0},
                         static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())))
      ->group(group);
  app.add_flag("--parse-special", o.parse_special,
               "Special tokens written in documents and prompts count as such; else they are text")
      ->group(group);
}

void add_cache_options(CLI::App& app, RunOptions& o) {
  const std::string heads = "Retrieval and streaming heads";
  app.add_option("--head-profile", o.head_profile,
                 "Folder with full_attention_heads.tsv and config.json (DuoAttention); without it "
                 "every head keeps every token")
      ->group(heads);
  app.add_option("--retrieval-ratio", o.retrieval_ratio,
                 "Share of heads that keep every token (default: those with a gate of 0.5 or more)")
      ->check(CLI::Range(0.0, 1.0))
      ->group(heads);
  app.add_option("--sink", o.sink,
                 "First tokens that streaming heads keep (default: the profile's)")
      ->check(kFromZero)
      ->group(heads);
  app.add_option("--recent", o.recent,
                 "Last tokens that streaming heads keep (default: the profile's)")
      ->check(kCount)
      ->group(heads);
  const std::string memory = "Speed and memory";
  add_device_flag(app, o.device, memory);
  app.add_option("-t,--threads", o.n_threads,
                 "Threads of each rank (default: all cores of the host, divided "
                 "among its ranks)")
      ->check(CLI::Range(0, 4096))
      ->group(memory);
  app.add_option(
         "-b,--chunk-len,--batch-size", o.chunk_len,
         "Tokens of one prefill step, over all ranks of a ring (default: 2048 for each of up "
         "to 4 ranks)")
      ->check(kCount)
      ->group(memory);
  app.add_option("--parallel", o.parallel, "Requests answered at the same time")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}))
      ->capture_default_str()
      ->group(memory);
  app.add_option("--kv-limit", o.kv_limit, "Most memory of KV caches, such as 8G (default: none)")
      ->group(memory);
  add_weights_flag(app, o.weights, memory);
  add_cache_type_options(app, o.cache_types, memory);
  app.add_option("--block-size", o.block_size, "Tokens of a cache block")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}))
      ->capture_default_str()
      ->group(memory);
}

void add_rank_options(CLI::App& app, RunOptions& o) {
  const std::string group = "Several ranks (under mpirun or srun every process is one)";
  app.add_option("--ranks", o.n_ranks, "Without mpirun: so many ranks as threads of this process")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}))
      ->group(group);
  app.add_option("--cluster", o.cluster,
                 "TOML file of nodes, memory, speeds and links (the form is in "
                 "partition/cluster_spec.h); without it the ranks find out themselves")
      ->group(group);
  auto* plan =
      app.add_option("--plan", o.plan,
                     "Run this plan, written by longhaul plan --json, instead of making one")
          ->group(group);
  app.add_option("--stages", o.n_stages, "Stages of each replica (default: the fewest that fit)")
      ->check(kCount)
      ->excludes(plan)
      ->group(group);
  app.add_option("--replicas", o.n_replicas, "Replicas (default: as many as make sense)")
      ->check(kCount)
      ->excludes(plan)
      ->group(group);
  app.add_option("--history", o.history,
                 "What travels for retrieval heads over earlier chunks: keys, queries, or what "
                 "costs less")
      ->check(CLI::IsMember({"auto", "keys", "queries"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--decode-balance", o.decode_balance,
                 "total: ranks that read many KV bytes compute fewer columns; phases: columns by "
                 "reading speed alone")
      ->check(CLI::IsMember({"total", "phases"}))
      ->excludes(plan)
      ->capture_default_str()
      ->group(group);
  app.add_option("--dead-after", o.dead_after_seconds,
                 "Seconds of silence after which a rank counts as dead")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str()
      ->group(group);
  app.add_option("--control-address", o.control_address,
                 "Address of rank 0's node on which it takes the other nodes' control connections "
                 "(default: 127.0.0.1 on one node, else its first network interface)")
      ->group(group);
  app.add_option("--report", o.report,
                 "Write what each rank did and held to this file, as JSON, at the end")
      ->group(group);
  app.add_option(
         "--trace", o.trace,
         "Write the work, transfers and waits of each rank's first chunks to this file, its "
         "number before the extension (trace.json: trace.0.json, ...), for Perfetto or "
         "chrome://tracing")
      ->group(group);
  app.add_flag("--verbose", o.verbose, "Print the whole plan, as longhaul plan does")->group(group);
}

void add_operation_options(CLI::App& app, RunOptions& o) {
  const std::string group = "Operation";
  app.add_option("--save-kv", o.save_kv,
                 "Write each document's KV caches to HDF5 files in this folder, before requests on "
                 "it start (docs/kv_files.md)")
      ->group(group);
  app.add_option("--step-timeout", o.step_timeout_seconds,
                 "Seconds after which a step that has no result counts as hung")
      ->check(CLI::Range(1.0, 1e7))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--no-progress", o.no_progress, "Show no progress on stderr")->group(group);
  app.add_option("--log-level", o.log_level,
                 "debug, info, warning, error, off; also per part: info,kv=debug")
      ->capture_default_str()
      ->group(group);
  app.add_option("--log-file", o.log_file, "Write log lines to this file instead of stderr")
      ->group(group);
}

}  // namespace

void add_run_options(CLI::App& app, RunOptions& options) {
  add_work_options(app, options);
  add_generation_options(app, options);
  add_cache_options(app, options);
  add_rank_options(app, options);
  add_operation_options(app, options);
  name_environment_variables(app);
  app.footer(R"(Every flag can be set in the environment too: --ctx-size is LONGHAUL_CTX_SIZE.
LONGHAUL_ISA=baseline|avx2|avx512|avx512_vnni|avx512_bf16|amx forces an instruction set.

Examples:
  Ask one question about a document:
    longhaul run -m models/llama -f report.txt -p "Question: Who wrote this report? Answer:"
  Answer a file of requests; run it again to continue after a stop:
    longhaul run -m models/llama -i requests.jsonl -o results.jsonl
  The same, spread over the ranks of a cluster:
    mpirun longhaul run -m models/llama -i requests.jsonl -o results.jsonl
  A line of requests.jsonl:
    {"custom_id": "q1", "method": "POST", "url": "/v1/completions",
     "body": {"prompt": "Who wrote it?", "max_tokens": 50, "documents": [{"path": "report.txt"}]}}

Exit status: 0 all done, 1 some requests failed, 2 wrong flags or settings, 3 does not fit memory,
4 machine or build lacks something, 5 bad input, 70 internal error, 75 stopped early: run it again.)");
}

std::int64_t default_chunk_len(std::int64_t n_ranks) {
  return 2048 * std::clamp<std::int64_t>(n_ranks, 1, 4);
}

void check_run_options(const RunOptions& o) {
  const bool is_question = o.prompt.has_value() || !o.documents.empty();
  const bool is_batch = !o.input.empty() || !o.output.empty();
  require(is_question || is_batch,
          "nothing to do: give -i requests.jsonl -o results.jsonl, or -p \"a question\"");
  require(!(is_question && is_batch),
          "-p and -f ask one question, -i and -o run a file of requests: use one or the other");
  if (is_batch) {
    require(!o.input.empty(), "-o needs the requests too: -i requests.jsonl");
    require(!o.output.empty(), "-i needs a file for the results: -o results.jsonl");
  }
  require(!(o.overwrite && o.retry_errors),
          "--overwrite starts over, --retry-errors keeps what is done: use one of them");
  require(is_batch || !(o.overwrite || o.retry_errors),
          "--overwrite and --retry-errors are for -i and -o");
  const bool tunes_heads = o.retrieval_ratio || o.sink || o.recent;
  require(!tunes_heads || !o.head_profile.empty(),
          "--retrieval-ratio, --sink and --recent need --head-profile");
}

}  // namespace longhaul
