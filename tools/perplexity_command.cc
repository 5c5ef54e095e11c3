// `longhaul eval perplexity`: how well a model predicts a long text, token by token, when its heads
// see all of it, a window, or sinks and a window; and how long that takes.
#include "tools/perplexity_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/terminal.h"
#include "build_info.h"
#include "model/heads/heads_json.h"
#include "tools/eval/eval_flags.h"
#include "tools/eval/one_replica.h"
#include "tools/eval/output_files.h"
#include "tools/eval/perplexity_policies.h"
#include "tools/eval/perplexity_runner.h"
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

struct PerplexityFlags {
  EvalFlags eval;
  HeadFlags heads;
  std::filesystem::path file;
  std::filesystem::path token_ids;
  std::int64_t n_self_sampled = 0;
  std::optional<std::int64_t> piece_length;
  std::uint64_t seed = 0;
  std::optional<std::int64_t> max_tokens;
  std::vector<std::string> policies = {"dense,window,streaming"};
  PolicyWindow window;
  std::int64_t recompute_stride = 1;
  std::int64_t bucket = 256;
};

void add_text_flags(CLI::App& app, PerplexityFlags& f) {
  const std::string group = "Text (one of these)";
  auto* file = app.add_option("-f,--file", f.file, "Text file")->type_name("FILE")->group(group);
  auto* ids = app.add_option("--token-ids", f.token_ids,
                             "File of token ids between spaces or new lines, taken as they are")
                  ->type_name("FILE")
                  ->excludes(file)
                  ->group(group);
  app.add_option("--self-sampled", f.n_self_sampled,
                 "Score this many tokens that the model samples itself at temperature 1, restarted "
                 "for each piece; with --output-prefix they are kept in PREFIX.tokens")
      ->transform(with_letters())
      ->check(kLongCount)
      ->excludes(file)
      ->excludes(ids)
      ->group(group);
  app.add_option("--piece-length", f.piece_length,
                 "Most tokens of such a piece (default: what the model was made for)")
      ->transform(with_letters())
      ->check(kLongCount)
      ->group(group);
  app.add_option("--seed", f.seed, "Random seed of self-sampled text")
      ->check(kSeed)
      ->capture_default_str()
      ->group(group);
  app.add_option("--tokens", f.max_tokens, "Only the first so many tokens of the text")
      ->transform(with_letters())
      ->check(kLongCount)
      ->group(group);
}

void add_flags(CLI::App& app, PerplexityFlags& f) {
  add_eval_flags(app, f.eval);
  add_text_flags(app, f);
  app.add_option("--policy", f.policies,
                 "Any of dense, window, recompute, streaming (StreamingLLM: sinks and a window, at "
                 "positions in the cache), streaming-absolute, longgen (middle third of "
                 "the layers dense), duo; separated by commas; or NAME:key=value,..., as --policy "
                 "of longhaul run has it; may be given again")
      ->type_name("METHODS")
      ->capture_default_str();
  app.add_option("--window", f.window.window,
                 "Tokens that a query sees under window, recompute, streaming and longgen, its own "
                 "included")
      ->transform(with_letters())
      ->check(kLongCount)
      ->capture_default_str();
  app.add_option("--sink", f.window.sink,
                 "Of these, the first tokens of the text (streaming, longgen)")
      ->transform(with_letters())
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31))
      ->capture_default_str();
  app.add_option("--recompute-stride", f.recompute_stride,
                 "recompute scores only every Nth token; each costs one full window")
      ->transform(with_letters())
      ->check(kLongCount)
      ->capture_default_str();
  app.add_option("--bucket", f.bucket, "Positions that a point of the curves in files stands for")
      ->transform(with_letters())
      ->check(kLongCount)
      ->capture_default_str();
  app.add_option("-o,--output-prefix", f.eval.output_prefix,
                 "Write PREFIX.json (every token), PREFIX.csv, PREFIX.svg")
      ->type_name("PREFIX");
  add_profile_flags(app, f.heads.settings, kHeadGroup);
  name_environment_variables(app);
}

std::vector<std::int32_t> read_token_ids(const std::filesystem::path& path,
                                         std::int64_t vocab_size) {
  const MappedFile file = open_text(path);
  std::string_view left = file.text();
  std::vector<std::int32_t> ids;
  constexpr std::string_view kSpace = " \t\r\n";
  while (true) {
    left.remove_prefix(std::min(left.size(), left.find_first_not_of(kSpace)));
    if (left.empty()) return ids;
    const std::string_view word = left.substr(0, left.find_first_of(kSpace));
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocab_size) {
      throw Error(
          ErrorCode::kCorruptData,
          fmt::format("{}: byte {}: '{}' is no token id from 0 to {}", path.string(),
                      left.data() - file.text().data(), word.substr(0, 40), vocab_size - 1));
    }
    ids.push_back(id);
    left.remove_prefix(word.size());
  }
}

// What the policies are tried with: rank 0's view of a command that runs.
struct PerplexityTrial {
  const PerplexityFlags& flags;
  const EvalModel& model;
  JobRanks& ranks;
  ProgressLine& progress;

  // Plans for these heads and drives the ranks.
  void run(const HeadTable& heads, const EvalLengths& lengths,
           const std::function<void(StepRunner&)>& drive) const {
    const JobWork work{.model = &model.source(),
                       .heads = heads,
                       .profile = {},
                       .workload = model.workload(lengths, ranks.n_ranks)};
    on_one_replica(ranks, flags.eval.job, work, [&](const ReplicaRun& replica) {
      StepRunner steps(replica.link, replica.steps);
      drive(steps);
    });
  }
};

std::vector<std::int32_t> self_sampled(const PerplexityTrial& trial) {
  const PerplexityFlags& flags = trial.flags;
  const ModelSpec& spec = trial.model.spec();
  const std::int64_t longest = flags.piece_length.value_or(spec.max_seq_len);
  std::vector<std::int32_t> tokens;
  trial.run(
      dense_heads(spec),
      {.tail_tokens = std::min(longest, flags.n_self_sampled), .n_sequences = kPiecesTogether},
      [&](StepRunner& steps) {
        tokens = sample_text(
            steps, {.model = trial.model,
                    .n_tokens = flags.n_self_sampled,
                    .max_length = longest,
                    .seed = flags.seed,
                    .on_progress = [&](const std::string& t) { trial.progress.update(t); },
                    .stop_requested = stop_requested});
      });
  if (!flags.eval.output_prefix.empty())
    replace_file(flags.eval.output_prefix + ".tokens", fmt::format("{}\n", fmt::join(tokens, " ")));
  return tokens;
}

std::string source_of(const PerplexityFlags& flags) {
  if (flags.n_self_sampled > 0) return fmt::format("self-sampled, seed {}", flags.seed);
  return flags.token_ids.empty() ? flags.file.string() : flags.token_ids.string();
}

std::vector<std::int32_t> text_of(const PerplexityTrial& trial) {
  const PerplexityFlags& flags = trial.flags;
  const EvalModel& model = trial.model;
  std::vector<std::int32_t> tokens;
  if (flags.n_self_sampled > 0) {
    tokens = self_sampled(trial);
  } else if (!flags.token_ids.empty()) {
    tokens = read_token_ids(flags.token_ids, model.spec().vocab_size);
  } else {
    require(!flags.file.empty(),
            "which text? Give -f FILE, --token-ids FILE, or --self-sampled COUNT");
    tokens = model.start();
    const auto text = model.encode(open_text(flags.file).text());
    tokens.insert(tokens.end(), text.begin(), text.end());
  }
  if (flags.n_self_sampled == 0 && tokens.size() < 2) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: the text has fewer than 2 tokens: there is nothing to predict",
                            source_of(flags)));
  }
  if (flags.max_tokens && *flags.max_tokens < static_cast<std::int64_t>(tokens.size()))
    tokens.resize(static_cast<std::size_t>(*flags.max_tokens));
  require(tokens.size() >= 2, "of a text of one token there is nothing to predict: --tokens 2");
  return tokens;
}

Json settings_of(const PerplexityTrial& trial, const HeadRoles& duo) {
  const PerplexityFlags& flags = trial.flags;
  return JsonObject{{"longhaul", std::string(build_info::kVersion)},
                    {"model", trial.model.settings(trial.ranks.n_ranks)},
                    {"text", source_of(flags)},
                    {"window", flags.window.window},
                    {"sink", flags.window.sink},
                    {"recompute_stride", flags.recompute_stride},
                    {"duo", to_json(duo)}};
}

HeadTable heads_of(const PerplexityTrial& trial, const ComparedPolicy& policy,
                   const HeadRoles& duo) {
  const ModelSpec& spec = trial.model.spec();
  if (const auto* method = std::get_if<CacheMethod>(&policy)) {
    const HeadMethods methods{.all = *method, .full = std::nullopt};
    require_whole_pages(methods, usual_block_size(trial.flags.eval.job));
    return method_heads(spec, HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads), methods);
  }
  return duo_attention_heads(spec,
                             roles_of(std::get<PerplexityPolicy>(policy), trial.flags.window, duo));
}

PolicyCurve score(const PerplexityTrial& trial, const ComparedPolicy& policy, const HeadRoles& duo,
                  std::span<const std::int32_t> tokens) {
  const PerplexityFlags& flags = trial.flags;
  const std::string name = name_of(policy);
  const ScoreArgs args{.tokens = tokens,
                       .on_progress =
                           [&](const std::string& text) {
                             trial.progress.update(fmt::format("{}: {}", name, text));
                           },
                       .stop_requested = stop_requested};
  const auto n_tokens = static_cast<std::int64_t>(tokens.size());
  PolicyCurve curve;
  if (policy == ComparedPolicy(PerplexityPolicy::kRecompute)) {
    const std::int64_t window = flags.window.window;
    trial.run(dense_heads(trial.model.spec()), {.tail_tokens = std::min(window + 1, n_tokens)},
              [&](StepRunner& steps) {
                curve = score_with_recompute(steps, args, window, flags.recompute_stride);
              });
  } else {
    trial.run(heads_of(trial, policy, duo), {.tail_tokens = n_tokens},
              [&](StepRunner& steps) { curve = score_with_cache(steps, args); });
  }
  curve.name = name;
  const auto* named = std::get_if<PerplexityPolicy>(&policy);
  curve.description = named != nullptr ? describe(*named, flags.window, duo)
                                       : describe_briefly(heads_of(trial, policy, duo));
  return curve;
}

// Throws kInvalidArgument for flags of the command line that would have no effect.
void check_flags(const CLI::App& app, const PerplexityFlags& flags,
                 const std::vector<ComparedPolicy>& policies) {
  const auto any = [&](const auto& is_one) {
    return std::ranges::any_of(policies, [&](const ComparedPolicy& policy) {
      const auto* named = std::get_if<PerplexityPolicy>(&policy);
      return named != nullptr && is_one(*named);
    });
  };
  const bool recomputes = any([](auto policy) { return policy == PerplexityPolicy::kRecompute; });
  const bool has_duo = any([](auto policy) { return policy == PerplexityPolicy::kDuo; });
  const bool samples = flags.n_self_sampled > 0;
  const char* const profile_needs = "it needs --policy duo, which alone sees by a head profile";
  refuse_without_effect(
      app, std::vector<FlagUse>{
               {"--window", any(has_window),
                "it needs --policy window, recompute, streaming, streaming-absolute or longgen "
                "(others have parameters of their own: streaming:window=1K)"},
               {"--sink", any(has_sink),
                "it needs --policy streaming, streaming-absolute or longgen (others have "
                "parameters of their own: streaming:sink=8)"},
               {"--recompute-stride", recomputes, "it needs --policy recompute"},
               {"--seed", samples, "it needs --self-sampled, which alone draws anything"},
               {"--piece-length", samples, "it needs --self-sampled, whose pieces it limits"},
               {"--bucket", !flags.eval.output_prefix.empty(),
                "it needs -o PREFIX, for the curves are only in files"},
               {"--head-profile", has_duo, profile_needs},
               {"--retrieval-ratio", has_duo, profile_needs}});
}

// What --policy says, each time that it was given; refused before anything starts.
std::vector<ComparedPolicy> policies_of(const PerplexityFlags& flags) {
  std::vector<ComparedPolicy> policies;
  for (const std::string& text : flags.policies) {
    for (const ComparedPolicy& policy : parse_policies(text)) {
      if (const auto* method = std::get_if<CacheMethod>(&policy)) require_scores_texts(*method);
      policies.push_back(policy);
    }
  }
  require_different(policies);
  return policies;
}

// `n_asked` are the policies.
void write_report(const PerplexityFlags& flags, const PerplexityReport& report,
                  std::size_t n_asked) {
  write_outputs(prefix_for(flags.eval.output_prefix, report.is_complete),
                {.json = to_text(to_json(report)) + "\n",
                 .csv = to_csv(report),
                 .svg = to_svg(to_plot(report))});
  print_now(to_table(report, output_width()));
  if (report.is_complete) return;
  std::size_t n_done = 0;
  for (const PolicyCurve& curve : report.curves) {
    n_done += curve.is_complete ? 1 : 0;
    if (!curve.is_complete)
      print_now(fmt::format("{}: only {} of {} tokens\n", curve.name, curve.tokens.size(),
                            report.n_tokens));
  }
  print_now(partial_note(n_done, n_asked, "policies"));
}

// On rank 0; every policy is planned and run by itself.
int run_perplexity(const CLI::App& app, const PerplexityFlags& flags, JobRanks& ranks) {
  check_output_prefix(flags.eval.output_prefix);
  const auto policies = policies_of(flags);
  check_flags(app, flags, policies);
  const bool has_duo =
      std::ranges::find(policies, ComparedPolicy(PerplexityPolicy::kDuo)) != policies.end();
  require(!has_duo || !flags.heads.settings.profile.empty(), "--policy duo needs --head-profile");
  const EvalModel model(open_folder(flags.eval), flags.eval.job);
  const HeadRoles duo = read_head_roles(flags.heads, model.folder());
  ProgressLine progress(!flags.eval.no_progress);
  progress.print(fmt::format("longhaul eval perplexity: {}", model.description()));
  const PerplexityTrial trial{.flags = flags, .model = model, .ranks = ranks, .progress = progress};
  const std::vector<std::int32_t> tokens = text_of(trial);
  PerplexityReport report{
      .title = fmt::format("{} over {} tokens of {}", model_name(flags.eval.model), tokens.size(),
                           source_of(flags)),
      .settings = settings_of(trial, duo),
      .n_tokens = static_cast<std::int64_t>(tokens.size()),
      .bucket = flags.bucket};
  for (const ComparedPolicy& policy : policies) {
    report.is_complete = !stop_requested();
    if (!report.is_complete) break;
    PolicyCurve curve = score(trial, policy, duo, tokens);
    progress.print(
        fmt::format("{}: {} tokens in {:.1f} s", curve.name, curve.tokens.size(), curve.seconds));
    report.curves.push_back(std::move(curve));
    report.is_complete = report.curves.back().is_complete;
    if (!report.is_complete) break;
  }
  progress.clear();
  write_report(flags, report, policies.size());
  return report.is_complete ? kExitDone : kExitStopped;
}

}  // namespace

Command add_eval_perplexity_command(CLI::App& eval) {
  CLI::App* app = eval.add_subcommand(
      "perplexity", "How well a model predicts a long text under several cache policies");
  const auto flags = std::make_shared<PerplexityFlags>();
  add_flags(*app, *flags);
  app->footer(R"(Examples:
  StreamingLLM's comparison on a text file:
    longhaul eval perplexity -m MODEL -f book.txt --policy dense,window,streaming --window 1024
  Methods with parameters of their own:
    longhaul eval perplexity -m MODEL -f book.txt --policy streaming:sink=8,window=1K \
      infinite:cap=1K,slide=128
  A small model on its own writing, with the window computed anew for every 16th token:
    longhaul eval perplexity -m MODEL --self-sampled 20000 --policy dense,recompute,streaming \
      --window 256 --recompute-stride 16 -o perplexity

A stopped evaluation writes what was done to PREFIX.partial.json and so on.
)" + exit_status_help());
  return {app, [app, flags] {
            install_stop_signals();
            flags->eval.job.flags_given = given_flags(*app);
            return run_job(
                flags->eval.job, [&] { return open_source(flags->eval); },
                [&](JobRanks& ranks) { return run_perplexity(*app, *flags, ranks); });
          }};
}

}  // namespace longhaul
