// `longhaul eval methods`: one needle set, and a text if one is given, under every cache method and
// budget, beside what the caches take.
#include "tools/methods_command.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/terminal.h"
#include "build_info.h"
#include "model/heads/heads_json.h"
#include "model/heads/kept_blocks.h"
#include "tools/eval/continuation.h"
#include "tools/eval/eval_flags.h"
#include "tools/eval/method_table.h"
#include "tools/eval/needle_flags.h"
#include "tools/eval/needle_runner.h"
#include "tools/eval/number_lists.h"
#include "tools/eval/one_replica.h"
#include "tools/eval/output_files.h"
#include "tools/flags/cache_method_words.h"
#include "tools/flags/count_flag.h"
#include "tools/flags/environment.h"
#include "tools/flags/flag_use.h"
#include "tools/flags/given_flags.h"
#include "tools/flags/job_flags.h"
#include "tools/job/exit_status.h"
#include "tools/job/job.h"
#include "tools/job/stop_signal.h"
#include "tools/progress_line.h"
#include "tools/standard_streams.h"

namespace longhaul {
namespace {

struct MethodsFlags {
  EvalFlags eval;
  std::vector<std::string> methods = {"dense",   "streaming", "window", "infinite",
                                      "snapkv",  "pyramidkv", "adakv",  "tova",
                                      "keydiff", "h2o",       "quest"};
  std::string budgets = "50,25,12.5";
  NeedleFlags needles{.lengths = "4K"};
  std::filesystem::path text;  // whose continuation is predicted; may be empty
  std::int64_t n_scored = 256;
};

constexpr std::int64_t kTextPrompt = 32;  // tokens between a text's document and its continuation

void add_flags(CLI::App& app, MethodsFlags& f) {
  add_eval_flags(app, f.eval);
  app.add_option(
         "-o,--output-prefix", f.eval.output_prefix,
         "Write PREFIX.json, PREFIX.csv, PREFIX.svg and, with --text, PREFIX.perplexity.svg")
      ->type_name("PREFIX");
  add_parallel_flag(app, f.eval.job, "Speed and memory");
  const std::string group = "What is compared";
  app.add_option("--method", f.methods,
                 "Methods as --policy of longhaul run has them; their budgets are those below")
      ->type_name("METHODS")
      ->capture_default_str()
      ->group(group);
  app.add_option("--budgets", f.budgets, "Tokens that a head keeps, in percent of the document")
      ->type_name("LIST")
      ->capture_default_str()
      ->group(group);
  add_needle_grid_flags(app, f.needles, group);
  add_needle_text_flags(app, f.needles, group);
  app.add_option("--text", f.text,
                 "Text file: its first tokens are read as a document of each length, and how "
                 "likely those behind it are is asked token by token, as in an answer")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--text-tokens", f.n_scored, "Tokens of the text that are predicted")
      ->transform(with_letters())
      ->check(kSmallCount)
      ->capture_default_str()
      ->group(group);
  name_environment_variables(app);
}

// A method with a budget, on documents of one length.
struct MethodTrial {
  std::string asked_for;
  CacheMethod method;
  std::int64_t length = 0;
  std::int64_t budget = 0;
};

// A method that has no budget is tried once a length.
std::vector<MethodTrial> trials_of(const MethodsFlags& flags) {
  std::vector<MethodTrial> trials;
  for (const std::int64_t length : parse_counts(flags.needles.lengths, "--lengths")) {
    for (const std::string& text : flags.methods) {
      const CacheMethod method = parse_cache_method(text);
      if (with_budget(method, 1) == with_budget(method, 2)) {
        trials.push_back({text, method, length, length});
        continue;
      }
      for (const double share : parse_percentages(flags.budgets, "--budgets")) {
        const auto budget = static_cast<std::int64_t>(share * static_cast<double>(length));
        require(budget >= 1, "--budgets: a budget of no token");
        trials.push_back({text, with_budget(method, budget), length, budget});
      }
    }
  }
  return trials;
}

// Throws kInvalidArgument for flags of the command line that would have no effect.
void check_flags(const CLI::App& app, const MethodsFlags& flags) {
  const bool any_budget = std::ranges::any_of(flags.methods, [](const std::string& text) {
    const CacheMethod method = parse_cache_method(text);
    return with_budget(method, 1) != with_budget(method, 2);
  });
  refuse_without_effect(
      app,
      std::vector<FlagUse>{
          {"--text-tokens", !flags.text.empty(), "it needs --text FILE, whose tokens it counts"},
          {"--budgets", any_budget, "it needs a --method that has a budget"}});
}

class MethodTrials {
 public:
  MethodTrials(const MethodsFlags& flags, JobRanks& ranks)
      : flags_(flags),
        ranks_(ranks),
        model_(open_folder(flags.eval), flags.eval.job),
        progress_(!flags.eval.no_progress) {}

  int run() {
    const std::vector<MethodTrial> trials = trials_of(flags_);
    for (const MethodTrial& trial : trials) heads_of(trial);  // refused before anything starts
    if (!flags_.text.empty()) read_text(trials);
    MethodTable table{.settings = settings()};
    for (const MethodTrial& trial : trials) {
      table.is_complete = !stop_requested();
      if (!table.is_complete) break;
      table.rows.push_back(run(trial));
      table.is_complete = is_done(table.rows.back());
      if (!table.is_complete) break;
    }
    progress_.clear();
    const auto n_done = static_cast<std::size_t>(
        std::ranges::count_if(table.rows, [&](const MethodRow& row) { return is_done(row); }));
    const std::string prefix = prefix_for(flags_.eval.output_prefix, table.is_complete);
    write_outputs(prefix, {.json = to_text(to_json(table)) + "\n",
                           .csv = to_csv(table),
                           .svg = to_svg(answers_plot(table))});
    if (!prefix.empty() && !text_.empty())
      replace_file(prefix + ".perplexity.svg", to_svg(perplexity_plot(table)));
    print_now(to_text(table, output_width()));
    if (!table.is_complete) print_now(partial_note(n_done, trials.size(), "rows"));
    return table.is_complete ? kExitDone : kExitStopped;
  }

 private:
  // Whether no stop came before its last question and the last token of the text.
  bool is_done(const MethodRow& row) const {
    return row.n_documents == std::ssize(documents_of(row.length)) &&
           (text_.empty() || row.perplexity.has_value());
  }

  std::vector<PlannedDocument> documents_of(std::int64_t length) const {
    return plan_documents({.lengths = {length},
                           .depths = parse_percentages(flags_.needles.depths, "--depths"),
                           .n_documents = flags_.needles.n_documents,
                           .seed = flags_.needles.seed});
  }

  HeadTable heads_of(const MethodTrial& trial) const {
    const ModelSpec& spec = model_.spec();
    const HeadMethods methods{.all = trial.method, .full = std::nullopt};
    require_whole_pages(methods, usual_block_size(flags_.eval.job));
    HeadTable heads =
        method_heads(spec, HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads), methods);
    require_runnable(heads, ranks_.n_ranks > 1 ? RunsOn::kRing : RunsOn::kOneRank);
    return heads;
  }

  // Long enough for the longest document and what is predicted behind it.
  void read_text(const std::vector<MethodTrial>& trials) {
    text_ = model_.start();
    const auto tokens = model_.encode(open_text(flags_.text).text());
    text_.insert(text_.end(), tokens.begin(), tokens.end());
    const auto n = static_cast<std::int64_t>(text_.size());
    for (const MethodTrial& trial : trials) {
      const std::int64_t wanted = trial.length + kTextPrompt + flags_.n_scored;
      require(
          n >= wanted,
          fmt::format("--text {} has {} tokens: a document of {} (--lengths), a prompt of {} "
                      "and {} to predict (--text-tokens) take {}",
                      flags_.text.string(), n, trial.length, kTextPrompt, flags_.n_scored, wanted));
    }
  }

  void predict_text(StepRunner& steps, MethodRow& row) const {
    const auto n = static_cast<std::size_t>(row.length + kTextPrompt + flags_.n_scored);
    const ContinuationScore score =
        score_continuation(steps, {.tokens = std::span(text_).first(n),
                                   .n_document = row.length,
                                   .n_prompt = kTextPrompt,
                                   .vocab_size = model_.spec().vocab_size,
                                   .stop_requested = stop_requested});
    if (score.n_tokens < flags_.n_scored) return;  // stopped
    row.perplexity = std::exp(score.mean_nll);
    row.answer_tokens_per_s = static_cast<double>(score.n_tokens) / score.seconds;
  }

  Json settings() const {
    return JsonObject{{"longhaul", std::string(build_info::kVersion)},
                      {"model", model_.settings(ranks_.n_ranks)},
                      {"seed", flags_.needles.seed},
                      {"depths", flags_.needles.depths},
                      {"documents", flags_.needles.n_documents},
                      {"max_tokens", flags_.needles.max_answer_tokens},
                      {"text", flags_.text.string()},
                      {"text_tokens", flags_.n_scored}};
  }

  MethodRow run(const MethodTrial& trial) {
    const std::string name = to_text(trial.method);
    const std::vector<PlannedDocument> documents = documents_of(trial.length);
    const NeedleRunner runner(
        {.model = model_,
         .texts = flags_.needles.texts,
         .seed = flags_.needles.seed,
         .max_answer_tokens = flags_.needles.max_answer_tokens,
         .n_parallel = flags_.eval.job.n_parallel,
         .on_progress = [&](const std::string& t) { progress_.update(name + ": " + t); },
         .stop_requested = stop_requested},
        trial.length);
    const std::int64_t tail = text_.empty() ? 0 : kTextPrompt + flags_.n_scored;
    const Workload workload =
        model_.workload({.document_tokens = trial.length,
                         .tail_tokens = std::max(tail, runner.tail_tokens(documents)),
                         .n_sequences = flags_.eval.job.n_parallel},
                        ranks_.n_ranks);
    const JobWork work{
        .model = &model_.source(), .heads = heads_of(trial), .profile = {}, .workload = workload};
    MethodRow row;
    on_one_replica(ranks_, flags_.eval.job, work, [&](const ReplicaRun& replica) {
      StepRunner steps(replica.link, replica.steps);
      const ModelSpec& spec = model_.spec();
      row = row_of(runner.run(steps, name, HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads),
                              documents));
      row.length = trial.length;
      if (!text_.empty() && !stop_requested()) predict_text(steps, row);
    });
    row.asked_for = trial.asked_for;
    row.budget = trial.budget;
    row.heads = to_json(work.heads);
    row.kv_predicted = predicted_bytes(work);
    progress_.print(fmt::format("{}: {} of {} right", name, row.score.n_right, row.score.n_asked));
    return row;
  }

  // Of a document that is whole, however many ranks share it.
  std::size_t predicted_bytes(const JobWork& work) const {
    const std::int64_t n_tokens = work.workload.document_tokens;
    const Extent layers{0, model_.spec().n_layers};
    const KvFormat kv = work.workload.kv(model_.spec());
    return static_cast<std::size_t>(
        kv.bytes_of(document_blocks(work.heads, layers, kv.block_size, n_tokens),
                    open_blocks(work.heads, layers, kv.block_size, n_tokens)));
  }

  const MethodsFlags& flags_;
  JobRanks& ranks_;
  EvalModel model_;
  std::vector<std::int32_t> text_;
  ProgressLine progress_;
};

}  // namespace

Command add_eval_methods_command(CLI::App& eval) {
  CLI::App* app = eval.add_subcommand(
      "methods", "Cache methods and budgets side by side: what they answer, and what they take");
  const auto flags = std::make_shared<MethodsFlags>();
  add_flags(*app, *flags);
  app->footer(R"(Examples:
  All methods at a half, a quarter and an eighth of a document's tokens:
    longhaul eval methods -m examples/needle/model --lengths 4K -o methods
  Two of them, with parameters of their own:
    longhaul eval methods -m MODEL --method streaming:sink=8 snapkv:window=16,pool=max --budgets 10

  The same, and how well each predicts a text's continuation:
    longhaul eval methods -m MODEL --text book.txt -o methods

budget is what a head keeps of a document; KV bytes are measured when a document is whole, before
questions on it; predicted is what the blocks that the method keeps of it take, where heads that
share a budget take even parts of it.
A stopped evaluation writes what was done to PREFIX.partial.json and so on.

)" + exit_status_help());
  return {app, [app, flags] {
            install_stop_signals();
            flags->eval.job.flags_given = given_flags(*app);
            check_output_prefix(flags->eval.output_prefix);
            return run_job(
                flags->eval.job, [&] { return open_source(flags->eval); },
                [&](JobRanks& ranks) {
                  check_flags(*app, *flags);
                  return MethodTrials(*flags, ranks).run();
                });
          }};
}

}  // namespace longhaul
