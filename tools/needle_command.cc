// `longhaul eval needle`: records hidden in documents of given lengths, at given depths, and how
// many of them a model finds.
#include "tools/needle_command.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/terminal.h"
#include "build_info.h"
#include "model/heads/heads_json.h"
#include "tools/eval/eval_flags.h"
#include "tools/eval/needle_flags.h"
#include "tools/eval/needle_runner.h"
#include "tools/eval/number_lists.h"
#include "tools/eval/one_replica.h"
#include "tools/eval/output_files.h"
#include "tools/flags/commands.h"
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

struct NeedleCommand {
  EvalFlags eval;
  HeadFlags heads;
  std::string each_head;
  NeedleFlags needles{.lengths = "1K,4K,16K"};
  std::int64_t records_per_document = 0;
  int n_digits = 6;
  bool may_share_words = false;
};

void add_grid_flags(CLI::App& app, NeedleCommand& f) {
  const std::string group = "Grid";
  add_needle_grid_flags(app, f.needles, group);
  app.add_option("--records-per-document", f.records_per_document,
                 "How many of the depths share a document; fewer take longer (default: all)")
      ->check(kSmallCount)
      ->group(group);
  app.add_option("--each-head", f.each_head,
                 "The whole grid once for each head: with that head made streaming, or as the "
                 "only one that keeps every token")
      ->check(CLI::IsMember({"streaming", "only"}))
      ->group(group);
}

void add_text_flags(CLI::App& app, NeedleCommand& f) {
  const std::string group = "Texts ({key} and {value} are filled in; \\n is a new line)";
  add_needle_text_flags(app, f.needles, group);
  NeedleTexts& texts = f.needles.texts;
  app.add_option("--document-start", texts.document_start, "Stands in front of the haystack")
      ->group(group);
  app.add_option("--needle-template", texts.needle, "A record")
      ->capture_default_str()
      ->group(group);
  app.add_option("--question-template", texts.question, "What follows the document")
      ->capture_default_str()
      ->group(group);
  app.add_option("--answer-template", texts.answer,
                 "The first line of a right answer, white space aside")
      ->capture_default_str()
      ->group(group);
  app.add_option("--digits", f.n_digits, "Digits in each value")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--names-may-share-words", f.may_share_words,
               "Allow 'amber falcon' and 'amber river' in one document")
      ->group(group);
  app.add_flag("--parse-special", texts.parse_special,
               "Special tokens written in the templates (not in the haystack) count as such")
      ->group(group);
}

void add_flags(CLI::App& app, NeedleCommand& f) {
  add_eval_flags(app, f.eval);
  app.add_option("-o,--output-prefix", f.eval.output_prefix,
                 "Write PREFIX.json (every question), PREFIX.csv (the grid), PREFIX.svg")
      ->type_name("PREFIX");
  add_parallel_flag(app, f.eval.job, "Speed and memory");
  add_grid_flags(app, f);
  add_text_flags(app, f);
  add_head_flags(app, f.heads.settings, kHeadGroup);
  add_single_head_flags(app, f.heads);
  name_environment_variables(app);
}

// What is asked once: a name, the roles, and the head that was changed.
struct Variant {
  std::string name;
  std::optional<HeadId> head;
  HeadRoles roles;
  HeadTable heads;
};

std::vector<Variant> variants_of(const NeedleCommand& flags, const EvalModel& model) {
  const ModelSpec& spec = model.spec();
  const HeadRoles base = read_head_roles(flags.heads, model.folder());
  const HeadMethods& methods = flags.heads.settings.methods;
  require_whole_pages(methods, usual_block_size(flags.eval.job));
  const auto table = [&](const HeadRoles& roles) { return method_heads(spec, roles, methods); };
  if (flags.each_head.empty()) {
    const HeadTable heads = table(base);
    return {{describe_briefly(heads), std::nullopt, base, heads}};
  }
  require(methods.empty(), "--each-head changes one head at a time: give no --policy with it");
  std::vector<Variant> variants;
  for (std::int64_t layer = 0; layer < spec.n_layers; ++layer) {
    for (std::int64_t kv_head = 0; kv_head < spec.n_kv_heads; ++kv_head) {
      const HeadId head{layer, kv_head};
      const bool is_only = flags.each_head == "only";
      const HeadRoles roles =
          is_only ? with_only_retrieval_head(base, head) : with_head_streaming(base, head);
      variants.push_back(
          {fmt::format("{} {}:{}", flags.each_head, layer, kv_head), head, roles, table(roles)});
    }
  }
  return variants;
}

std::string title_of(const NeedleCommand& flags, const std::vector<Variant>& variants) {
  if (flags.each_head == "only") return "Needle: one head alone keeps every token";
  if (flags.each_head == "streaming") return "Needle: one head made a streaming head";
  return fmt::format("Needle: {}", variants.front().name);
}

Json settings_of(const NeedleCommand& flags, const EvalModel& model,
                 const std::vector<Variant>& variants, std::int64_t n_ranks) {
  JsonArray haystacks;
  for (const auto& path : flags.needles.texts.haystacks) haystacks.emplace_back(path.string());
  JsonObject settings{{"longhaul", std::string(build_info::kVersion)},
                      {"model", model.settings(n_ranks)},
                      {"seed", flags.needles.seed},
                      {"records_per_document", flags.records_per_document},
                      {"names_may_share_words", flags.may_share_words},
                      {"haystacks", std::move(haystacks)},
                      {"document_start", flags.needles.texts.document_start},
                      {"needle_template", flags.needles.texts.needle},
                      {"question_template", flags.needles.texts.question},
                      {"answer_template", flags.needles.texts.answer},
                      {"max_tokens", flags.needles.max_answer_tokens}};
  const HeadMethods& methods = flags.heads.settings.methods;
  if (!methods.empty()) settings.emplace_back("head_policies", to_json(variants.front().heads));
  return settings;
}

std::string summary_of(const NeedleRun& run) {
  const NeedleScore score = score_of(run);
  double seconds = 0;
  std::int64_t n_tokens = 0;
  for (const NeedleReading& reading : run.readings) {
    seconds += reading.prefill_seconds;
    n_tokens += reading.length;
  }
  return fmt::format("{}: {} of {} right; {} tokens read in {:.1f} s", run.name, score.n_right,
                     score.n_asked, n_tokens, seconds);
}

NeedlePlanArgs grid_of(const NeedleCommand& flags) {
  return {.lengths = parse_counts(flags.needles.lengths, "--lengths"),
          .depths = parse_percentages(flags.needles.depths, "--depths"),
          .n_documents = flags.needles.n_documents,
          .records_per_document = flags.records_per_document,
          .n_digits = flags.n_digits,
          .words = flags.may_share_words ? NameWords::kMayRepeat : NameWords::kNeverShared,
          .seed = flags.needles.seed};
}

// `n_asked` are the documents of all runs.
void write_report(const NeedleCommand& flags, const NeedleReport& report, std::size_t n_asked) {
  write_outputs(prefix_for(flags.eval.output_prefix, report.is_complete),
                {.json = to_text(to_json(report)) + "\n",
                 .csv = to_csv(report),
                 .svg = to_svg(to_heat_map(report))});
  print_now(to_table(report, output_width()));
  std::size_t n_done = 0;
  for (const NeedleRun& run : report.runs) n_done += run.readings.size();
  if (!report.is_complete) print_now(partial_note(n_done, n_asked, "documents"));
}

// Throws kInvalidArgument for flags of the command line that would have no effect.
void check_flags(const CLI::App& app, const NeedleCommand& flags) {
  const HeadChoice& choice = flags.heads.choice;
  const bool some_stream = !flags.heads.settings.profile.empty() || !flags.each_head.empty() ||
                           choice.all_streaming || choice.only_retrieval_head ||
                           !choice.streaming_heads.empty();
  const char* const stream_needs =
      "it needs heads that stream: --head-profile, --each-head, --all-streaming, --streaming-head "
      "or --only-retrieval-head";
  refuse_without_effect(app, std::vector<FlagUse>{{"--sink", some_stream, stream_needs},
                                                  {"--recent", some_stream, stream_needs}});
}

// On rank 0; every variant is planned and asked by itself.
int run_needle(const CLI::App& app, const NeedleCommand& flags, JobRanks& ranks) {
  check_flags(app, flags);
  check_output_prefix(flags.eval.output_prefix);
  const NeedlePlanArgs grid = grid_of(flags);
  const std::vector<PlannedDocument> documents = plan_documents(grid);
  const EvalModel model(open_folder(flags.eval), flags.eval.job);
  const std::vector<Variant> variants = variants_of(flags, model);
  NeedleReport report{
      .title = fmt::format("{}, {}", title_of(flags, variants), model_name(flags.eval.model)),
      .settings = settings_of(flags, model, variants, ranks.n_ranks),
      .lengths = grid.lengths,
      .depths = grid.depths,
      .runs = {}};
  ProgressLine progress(!flags.eval.no_progress);
  progress.print(fmt::format("longhaul eval needle: {}", model.description()));
  const std::int64_t longest = *std::max_element(grid.lengths.begin(), grid.lengths.end());
  const std::int64_t most = model.spec().max_seq_len;
  if (longest > most) {
    progress.print(fmt::format(
        "longhaul: warning: documents of {} tokens are longer than the {} that the model was made "
        "for; what is not found there says little (--lengths)",
        longest, most));
  }
  const NeedleRunner runner({.model = model,
                             .texts = flags.needles.texts,
                             .seed = flags.needles.seed,
                             .max_answer_tokens = flags.needles.max_answer_tokens,
                             .n_parallel = flags.eval.job.n_parallel,
                             .on_progress = [&](const std::string& t) { progress.update(t); },
                             .stop_requested = stop_requested},
                            longest);
  const Workload workload = model.workload({.document_tokens = longest,
                                            .tail_tokens = runner.tail_tokens(documents),
                                            .n_sequences = flags.eval.job.n_parallel},
                                           ranks.n_ranks);
  for (const Variant& variant : variants) {
    report.is_complete = !stop_requested();
    if (!report.is_complete) break;
    const JobWork work{
        .model = &model.source(), .heads = variant.heads, .profile = {}, .workload = workload};
    on_one_replica(ranks, flags.eval.job, work, [&](const ReplicaRun& replica) {
      StepRunner steps(replica.link, replica.steps);
      report.runs.push_back(runner.run(steps, variant.name, variant.roles, documents));
    });
    report.runs.back().head = variant.head;
    progress.print(summary_of(report.runs.back()));
    report.is_complete = report.runs.back().readings.size() == documents.size();
    if (!report.is_complete) break;
  }
  progress.clear();
  write_report(flags, report, variants.size() * documents.size());
  return report.is_complete ? kExitDone : kExitStopped;
}

}  // namespace

Command add_eval_needle_command(CLI::App& eval) {
  CLI::App* app = eval.add_subcommand(
      "needle", "How many records hidden in long documents a model finds, by length and depth");
  const auto flags = std::make_shared<NeedleCommand>();
  add_flags(*app, *flags);
  app->footer(R"(Examples:
  The embedded model over made-up prose:
    longhaul eval needle -m examples/needle/model --head-profile examples/needle/profile \
      --lengths 1K,4K,16K -o needle
  Which heads does it need?
    longhaul eval needle -m examples/needle/model --lengths 4K --sink 16 --recent 128 \
      --each-head only -o heads
  On the ranks of a cluster, with the same answers:
    mpirun longhaul eval needle -m models/llama --lengths 256K,1M

A stopped evaluation writes what was done to PREFIX.partial.json and so on.
)" + exit_status_help());
  return {app, [app, flags] {
            install_stop_signals();
            flags->eval.job.flags_given = given_flags(*app);
            return run_job(
                flags->eval.job, [&] { return open_source(flags->eval); },
                [&](JobRanks& ranks) { return run_needle(*app, *flags, ranks); });
          }};
}

}  // namespace longhaul
