#include "tools/run_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "coordinator/body_fields.h"
#include "tools/flags/cache_method_words.h"
#include "tools/flags/count_flag.h"
#include "tools/flags/environment.h"
#include "tools/flags/flag_use.h"
#include "tools/flags/given_flags.h"
#include "tools/flags/job_flags.h"
#include "tools/job/exit_status.h"

namespace longhaul {
namespace {

void add_work_options(CLI::App& app, RunOptions& o) {
  add_model_flag(app, o.answers.model);
  const std::string batch = "Many requests";
  app.add_option("-i,--input-file", o.input,
                 "Requests, one JSON object per line (OpenAI Batch form); - is standard input.\n"
                 "Body fields of /v1/chat/completions: " +
                     accepted_body_fields(Endpoint::kChat) +
                     "\nOf /v1/completions: " + accepted_body_fields(Endpoint::kCompletions))
      ->type_name("FILE")
      ->group(batch);
  app.add_option("-o,--output-file", o.output,
                 "Results, one line per finished request. Failed ones go to OUT.errors.jsonl. "
                 "Running the same command again continues where it stopped. - is standard output: "
                 "results and failures, and no continuing")
      ->type_name("FILE")
      ->group(batch);
  app.add_flag("--skip-bad-lines", o.skip_bad_lines,
               "Write lines that cannot be understood to OUT.errors.jsonl, with their reasons, and "
               "run the others (default: nothing is run). The exit status is then 1")
      ->group(batch);
  app.add_flag("--retry-errors", o.retry_errors,
               "Run failed requests of an earlier run again (those that failed for want of memory "
               "run again by themselves)")
      ->group(batch);
  app.add_flag("--overwrite", o.overwrite, "Start over: results that are there are lost")
      ->group(batch);
  app.add_flag("--accept-edited", o.accept_edited,
               "Keep results that were edited by hand (default: their checksums refuse them)")
      ->group(batch);
  const std::string single = "One question";
  app.add_option("-p,--prompt", o.prompt, "The question; the answer goes to stdout as it grows")
      ->group(single);
  app.add_option("-f,--file", o.documents,
                 "Text file(s) to stand before the prompt; - is standard input")
      ->type_name("FILE")
      ->group(single);
  app.add_option("--sys,--system-prompt", o.system_prompt, "System message before the question")
      ->group(single);
  app.add_flag("--no-chat", o.no_chat,
               "Give the model the text as it is (default: its chat template, where it has one)")
      ->group(single);
}

void add_sampling_options(CLI::App& app, SamplingFlags& sampling, const std::string& group) {
  app.add_option("--temp,--temperature", sampling.temperature,
                 "0 is greedy (default: generation_config.json if it samples, else 0)")
      ->group(group);
  app.add_option("--top-k", sampling.top_k, "Only the k likeliest tokens; 0, -1: off")
      ->check(whole_number(-1, std::numeric_limits<std::int32_t>::max()))
      ->group(group);
  app.add_option("--top-p", sampling.top_p, "Only the likeliest tokens of this total; 1 = off")
      ->group(group);
  app.add_option("--min-p", sampling.min_p,
                 "Only tokens at least this likely, relative to the likeliest; 0 = off")
      ->group(group);
  app.add_option("--repetition-penalty,--repeat-penalty", sampling.repetition_penalty,
                 "Makes tokens of the prompt, its documents included, and of the answer unlikelier "
                 "above 1 (default: generation_config.json if it samples, else 1 = off)")
      ->group(group);
  app.add_option("--frequency-penalty", sampling.frequency_penalty,
                 "Taken off a token's logit for each time that the answer has it (default 0)")
      ->group(group);
  app.add_option("--presence-penalty", sampling.presence_penalty,
                 "Taken off the logits of tokens that the answer has (default 0)")
      ->group(group);
  app.add_option("--stop", sampling.stop,
                 "Text that ends an answer and is cut off; may be given again")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option_function<std::int64_t>(
         "-s,--seed",
         [&sampling](const std::int64_t& seed) {
           sampling.draws_seed = seed < 0;
           sampling.seed = seed < 0 ? std::random_device()() : static_cast<std::uint64_t>(seed);
         },
         "Random seed (default 0: every run draws the same; -1: another in each run that starts "
         "over, which says what it is)")
      ->check(whole_number(-1, std::numeric_limits<std::int64_t>::max()))
      ->group(group);
}

void add_generation_options(CLI::App& app, RunOptions& o) {
  const std::string group = "Answers (defaults for requests that say nothing themselves)";
  app.add_option(
         "-n,--n-predict,--max-tokens", o.answers.sampling.max_tokens,
         fmt::format("Maximum tokens per answer (default: the model's max_new_tokens, else {}); "
                     "-1: until it ends by itself or you stop it, with heads that all forget "
                     "(--policy streaming)",
                     SamplingDefaults{}.max_tokens))
      ->transform(with_letters())
      ->check(CLI::Validator(
          [](std::string& text) {
            const bool is_known = text == "-1" || kFromZero(text).empty();
            return is_known ? "" : text + " is neither a count of tokens nor -1 (without end)";
          },
          ""))
      ->group(group);
  app.add_option_function<std::int64_t>(
         "-c,--ctx-size,--max-model-len",
         [&o](const std::int64_t& n_tokens) {
           if (n_tokens > 0) o.answers.ctx_size = n_tokens;
         },
         "Most tokens of documents, prompt and answer together (default, and 0: the model's)")
      ->transform(with_letters())
      ->check(kFromZero)
      ->group(group);
  add_sampling_options(app, o.answers.sampling, group);
  app.add_option("--chat-template", o.answers.chat.chat_template,
                 "Jinja file to use as chat template (default: the model's own)")
      ->type_name("FILE")
      ->group(group);
  app.add_flag("--lossy-text", o.answers.lossy_text,
               "Accept documents that are no UTF-8 text; U+FFFD stands for what cannot be read")
      ->group(group);
  app.add_flag("--parse-special", o.answers.parse_special,
               "Special tokens written in documents and prompts count as such; else they are text")
      ->group(group);
}

void add_job_options(CLI::App& app, RunOptions& o) {
  add_head_flags(app, o.answers.heads, "Retrieval and streaming heads");
  const std::string memory = "Speed and memory";
  add_device_flags(app, o.job, memory);
  add_chunk_flag(app, o.job, memory);
  add_reproducible_flag(app, o.job, memory);
  add_parallel_flag(app, o.job, memory);
  add_lookup_flags(app, o.job, memory);
  add_draft_model_flags(app, o.job, memory);
  add_kv_limit_flag(app, o.job, memory);
  add_weights_flag(app, o.job, memory);
  add_verify_flags(app, o.job, memory);
  add_cache_flags(app, o.job, memory);
  add_rank_flags(app, o.job);
}

void add_operation_options(CLI::App& app, RunOptions& o) {
  const std::string group = "Operation";
  app.add_option("--save-kv", o.answers.save_kv,
                 "Write each document's KV caches to HDF5 files in this folder, before requests on "
                 "it start, unless they are there; documents that begin as one that is there go on "
                 "from it (docs/kv_files.md)")
      ->type_name("FOLDER")
      ->group(group);
  app.add_option("--load-kv", o.answers.load_kv,
                 "Take the beginnings of documents from saved KV caches in this folder, whatever "
                 "ranks wrote them")
      ->type_name("FOLDER")
      ->group(group);
  app.add_flag("--kv-convert", o.answers.kv_convert,
               "Convert saved caches of other types than this run's (else they are refused)")
      ->group(group);
  app.add_option_function<std::string>(
         "--checkpoint-every",
         [&o](const std::string& text) { o.answers.checkpoint_every = checkpoint_every(text); },
         fmt::format("While documents are read, save them as far as they are, for a run that goes "
                     "on: after so many chunks (16), after a time (10m), or so that it takes at "
                     "most a share of the time (default {}%); never: also not when the run is "
                     "stopped",
                     100 * CheckpointEvery{}.n))
      ->type_name("N|TIME|SHARE")
      ->group(group);
  app.add_option("--checkpoint-dir", o.answers.checkpoint_dir,
                 "Folder for that, which all ranks see (default: OUT.checkpoints beside the "
                 "results; with -p and -o - nothing is saved without it); a document's files go "
                 "when its requests are done")
      ->type_name("FOLDER")
      ->group(group);
  add_step_timeout_flag(app, o.job, group);
  app.add_option("--report", o.report,
                 "Write what each rank did and held to this file, as JSON, at the end")
      ->type_name("FILE")
      ->group(group);
  app.add_flag("--kv-report", o.kv_report,
               "At the end, print what the caches of each method took at the most, beside what "
               "plans predict and what every token would take")
      ->group(group);
  app.add_option("--save-cluster", o.save_cluster,
                 "Write the cluster to this file, with speeds that fit this run's times, for "
                 "longhaul plan --cluster (docs/clusters.md)")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--end-time", o.end_time,
                 "Seconds since 1970 at which the job will be ended: what cannot be read by then "
                 "is not begun, or saved in time where there are checkpoints; exit status 75 "
                 "(default: SLURM_JOB_END_TIME)")
      ->check(kFromZero)
      ->group(group);
  app.add_flag("--verbose", o.verbose,
               "Print the whole plan, as longhaul plan does, and at the end where each rank's time "
               "went and what it sent")
      ->group(group);
  app.add_option("--status", o.status.address,
                 "[ADDRESS:]PORT: show the job there while it runs: a page, /status.json, /metrics "
                 "for Prometheus, longhaul top. Without an address for this host alone; any other "
                 "address needs a token")
      ->type_name("ADDRESS")
      ->group(group);
  app.add_option("--status-token-file", o.status.token_file,
                 "File whose first line is the token (default: a random one, printed)")
      ->type_name("FILE")
      ->group(group);
  add_log_flags(app, o.log, group);
}

}  // namespace

void add_run_options(CLI::App& app, RunOptions& options) {
  options.answers.hub_cache = hub_cache();
  options.job.after_loss = "finished requests are kept, the same command continues";
  add_work_options(app, options);
  add_generation_options(app, options);
  add_job_options(app, options);
  add_operation_options(app, options);
  name_environment_variables(app);
  app.footer(R"(Every flag can be set in the environment too: --ctx-size is LONGHAUL_CTX_SIZE.
Sizes and counts take K, M, G as powers of 1024 (--ctx-size 128K, --kv-limit 8G); 8GB is 8 x 10^9.
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

)" + exit_status_help());
}

std::optional<MethodNames> kv_methods(const RunOptions& options) {
  if (!options.kv_report) return std::nullopt;
  const HeadMethods& methods = options.answers.heads.methods;
  const auto name = [](const std::optional<CacheMethod>& method) {
    return method ? to_text(*method) : "";
  };
  return MethodNames{.main = name(methods.all ? methods.all : methods.full),
                     .streaming_heads = name(methods.streaming)};
}

namespace {

// Of what is read of documents nothing is kept where nobody says the folder, or that none be.
void check_checkpoint_flags(const CLI::App& app, const RunOptions& o, bool has_results_file) {
  const bool never = o.answers.checkpoint_every.unit == CheckpointEvery::Unit::kNever;
  require(never || has_results_file || !o.answers.checkpoint_dir.empty() ||
              !is_on_command_line(app, "--checkpoint-every"),
          "--checkpoint-every needs --checkpoint-dir FOLDER with -p and with -o -: there is no "
          "file of results beside which documents could be saved");
  refuse_without_effect(app, std::vector<FlagUse>{{"--checkpoint-dir", !never,
                                                   "--checkpoint-every never saves nothing"}});
}

// What would be passed over without a word.
void check_effects(const CLI::App& app, const RunOptions& o, bool is_batch) {
  const char* const is_quiet = "-q prints nothing but answers, warnings, errors and the last line";
  refuse_without_effect(
      app,
      std::vector<FlagUse>{
          {"--parallel", is_batch, "-p asks one question; many are asked with -i"},
          {"--lossy-text", is_batch || !o.documents.empty(), "it is for documents: give -f FILE"},
          {"--chat-template", !o.no_chat, "--no-chat gives the model the text as it is"},
          {"--verbose", !o.log.quiet, is_quiet},
          {"--kv-report", !o.log.quiet, is_quiet},
          {"--accept-edited", !o.overwrite, "--overwrite starts over, whatever was edited"}});
}

}  // namespace

void check_run_options(const CLI::App& app, const RunOptions& o) {
  const bool is_question = o.prompt.has_value() || !o.documents.empty();
  const bool is_batch = !o.input.empty() || !o.output.empty();
  require(is_question || is_batch,
          "nothing to do: give -i requests.jsonl -o results.jsonl, or -p \"a question\"");
  require(!(is_question && is_batch),
          "-p and -f ask one question, -i and -o run a file of requests: use one or the other "
          "(also if they come from LONGHAUL_PROMPT and the like)");
  if (is_batch) {
    require(!o.input.empty(), "-o needs the requests too: -i requests.jsonl");
    require(!o.output.empty(), "-i needs a file for the results: -o results.jsonl");
  }
  require(!is_batch || (!o.no_chat && o.system_prompt.empty()),
          "--sys and --no-chat are for -p and -f: each request of -i says in its url and messages "
          "what the model reads");
  require(o.status.token_file.empty() || !o.status.address.empty(),
          "--status-token-file is for --status: give --status PORT too (also if it comes from "
          "LONGHAUL_STATUS_TOKEN_FILE)");
  if (o.job.plan.empty()) require_whole_pages(o.answers.heads.methods, usual_block_size(o.job));
  require(!(o.overwrite && o.retry_errors),
          "--overwrite starts over, --retry-errors keeps what is done: use one of them");
  require(!o.answers.kv_convert || !o.answers.load_kv.empty() || !o.answers.save_kv.empty(),
          "--kv-convert converts what --load-kv finds: give --load-kv FOLDER");
  require(is_batch || !(o.overwrite || o.retry_errors || o.skip_bad_lines || o.accept_edited),
          "--overwrite, --retry-errors, --skip-bad-lines and --accept-edited are for -i and -o");
  check_checkpoint_flags(app, o, is_batch && o.output != "-");
  require(o.output != "-" || !(o.overwrite || o.retry_errors || o.accept_edited),
          "-o - writes to standard output, where nothing is kept: --overwrite, --retry-errors and "
          "--accept-edited need a file");
  check_effects(app, o, is_batch);
}

}  // namespace longhaul
