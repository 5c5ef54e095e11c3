// `longhaul eval perplexity`: how well a model predicts a long text, token by token, when its heads
// see all of it, a window, or sinks and a window; and how long that takes.
#include "tools/eval/perplexity_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "build_info.h"
#include "tools/eval/eval_flags.h"
#include "tools/eval/output_files.h"
#include "tools/eval/perplexity_policies.h"
#include "tools/eval/perplexity_runner.h"
#include "tools/eval/progress_line.h"
#include "tools/exit_status.h"
#include "tools/stop_signal.h"

namespace longhaul {
namespace {

struct PerplexityFlags {
  EvalModelFlags model;
  HeadFlags heads;
  std::filesystem::path file;
  std::filesystem::path token_ids;
  std::int64_t n_self_sampled = 0;
  std::optional<std::int64_t> piece_length;
  std::uint64_t seed = 0;
  std::optional<std::int64_t> max_tokens;
  std::string policies = "dense,window,streaming";
  PolicyWindow window;
  std::int64_t recompute_stride = 1;
  std::int64_t bucket = 256;
  std::string output_prefix;
  bool no_progress = false;
};

const auto kCount = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);

void add_text_flags(CLI::App& app, PerplexityFlags& f) {
  const std::string group = "Text (one of these)";
  auto* file = app.add_option("-f,--file", f.file, "Text file")->group(group);
  auto* ids = app.add_option("--token-ids", f.token_ids,
                             "File of token ids between spaces or new lines, taken as they are")
                  ->excludes(file)
                  ->group(group);
  app.add_option("--self-sampled", f.n_self_sampled,
                 "So many tokens that the model writes itself at temperature 1, in pieces begun "
                 "afresh; with --output-prefix they are kept in PREFIX.tokens")
      ->check(kCount)
      ->excludes(file)
      ->excludes(ids)
      ->group(group);
  app.add_option("--piece-length", f.piece_length,
                 "Most tokens of such a piece (default: what the model was made for)")
      ->check(kCount)
      ->group(group);
  app.add_option("--seed", f.seed, "Of self-sampled text")->capture_default_str()->group(group);
  app.add_option("--tokens", f.max_tokens, "Only the first so many tokens of the text")
      ->check(kCount)
      ->group(group);
}

void add_flags(CLI::App& app, PerplexityFlags& f) {
  add_eval_model_flags(app, f.model);
  add_text_flags(app, f);
  app.add_option("--policy", f.policies,
                 "Any of dense, window, recompute, streaming (StreamingLLM: sinks and a window, at "
                 "positions in the cache), streaming-absolute, duo; separated by commas")
      ->capture_default_str();
  app.add_option("--window", f.window.window,
                 "Tokens that a query sees under window, recompute and streaming, its own included")
      ->check(kCount)
      ->capture_default_str();
  app.add_option("--sink", f.window.sink, "Of these, the first tokens of the text (streaming)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31))
      ->capture_default_str();
  app.add_option("--recompute-stride", f.recompute_stride,
                 "recompute scores every so manieth token only; it costs a window for each")
      ->check(kCount)
      ->capture_default_str();
  app.add_option("--bucket", f.bucket, "Positions that a point of the curves stands for")
      ->check(kCount)
      ->capture_default_str();
  app.add_option("-o,--output-prefix", f.output_prefix,
                 "Write PREFIX.json (every token), PREFIX.csv, PREFIX.svg");
  app.add_flag("--no-progress", f.no_progress, "Show no progress on stderr");
  add_profile_flags(app, f.heads);
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

std::vector<std::int32_t> text_of(const PerplexityFlags& flags, const EvalModel& model,
                                  ProgressLine& progress) {
  std::vector<std::int32_t> tokens;
  if (flags.n_self_sampled > 0) {
    tokens = sample_text({.model = model,
                          .n_tokens = flags.n_self_sampled,
                          .max_length = flags.piece_length.value_or(model.spec().max_seq_len),
                          .seed = flags.seed,
                          .on_progress = [&](const std::string& t) { progress.update(t); },
                          .stop_requested = stop_requested});
    if (!flags.output_prefix.empty())
      replace_file(flags.output_prefix + ".tokens", fmt::format("{}\n", fmt::join(tokens, " ")));
  } else if (!flags.token_ids.empty()) {
    tokens = read_token_ids(flags.token_ids, model.spec().vocab_size);
  } else {
    require(!flags.file.empty(),
            "which text? Give -f FILE, --token-ids FILE, or --self-sampled COUNT");
    tokens = model.start();
    const auto text = model.encode(open_text(flags.file).text());
    tokens.insert(tokens.end(), text.begin(), text.end());
  }
  if (flags.max_tokens && *flags.max_tokens < static_cast<std::int64_t>(tokens.size()))
    tokens.resize(static_cast<std::size_t>(*flags.max_tokens));
  require(tokens.size() >= 2, "the text has fewer than 2 tokens: there is nothing to predict");
  return tokens;
}

std::string source_of(const PerplexityFlags& flags) {
  if (flags.n_self_sampled > 0) return fmt::format("self-sampled, seed {}", flags.seed);
  return flags.token_ids.empty() ? flags.file.string() : flags.token_ids.string();
}

Json settings_of(const PerplexityFlags& flags, const EvalModel& model, const HeadRoles& duo) {
  return JsonObject{{"longhaul", std::string(build_info::kVersion)},
                    {"model", model.settings()},
                    {"text", source_of(flags)},
                    {"window", flags.window.window},
                    {"sink", flags.window.sink},
                    {"recompute_stride", flags.recompute_stride},
                    {"duo", to_json(duo)}};
}

PolicyCurve score(const PerplexityFlags& flags, PerplexityPolicy policy, const HeadRoles& duo,
                  const ScoreArgs& args) {
  PolicyCurve curve = policy == PerplexityPolicy::kRecompute
                          ? score_with_recompute(args, flags.window.window, flags.recompute_stride)
                          : score_with_cache(args, roles_of(policy, flags.window, duo));
  curve.name = name_of(policy);
  curve.description = describe(policy, flags.window, duo);
  return curve;
}

int run_perplexity(const PerplexityFlags& flags) {
  check_output_prefix(flags.output_prefix);
  const auto policies = parse_policies(flags.policies);
  const bool has_duo = std::ranges::find(policies, PerplexityPolicy::kDuo) != policies.end();
  require(!has_duo || !flags.heads.head_profile.empty(), "--policy duo needs --head-profile");
  const EvalModel model(flags.model);
  const HeadRoles duo = choose_head_roles(read_head_choice(flags.heads), model.spec().n_layers,
                                          model.spec().n_kv_heads);
  install_stop_signals();
  ProgressLine progress(!flags.no_progress);
  progress.print(fmt::format("longhaul eval perplexity: {}", model.description()));
  const std::vector<std::int32_t> tokens = text_of(flags, model, progress);
  PerplexityReport report{
      .title = fmt::format("{} over {} tokens of {}", model.folder().path().filename().string(),
                           tokens.size(), source_of(flags)),
      .settings = settings_of(flags, model, duo),
      .n_tokens = static_cast<std::int64_t>(tokens.size()),
      .bucket = flags.bucket};
  for (const PerplexityPolicy policy : policies) {
    const auto say = [&](const std::string& text) {
      progress.update(fmt::format("{}: {}", name_of(policy), text));
    };
    PolicyCurve curve = score(
        flags, policy, duo,
        {.model = model, .tokens = tokens, .on_progress = say, .stop_requested = stop_requested});
    progress.print(
        fmt::format("{}: {} tokens in {:.1f} s", curve.name, curve.tokens.size(), curve.seconds));
    report.curves.push_back(std::move(curve));
    report.is_complete = !stop_requested();
    if (stop_requested()) break;
  }
  fmt::print("{}", to_table(report));
  write_outputs(flags.output_prefix, {.json = to_text(to_json(report)) + "\n",
                                      .csv = to_csv(report),
                                      .svg = to_svg(to_plot(report))});
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
  A small model on its own writing, with the window computed anew for every 16th token:
    longhaul eval perplexity -m MODEL --self-sampled 20000 --policy dense,recompute,streaming \
      --window 256 --recompute-stride 16 -o perplexity

Exit status: 0 done, 2 wrong flags, 3 does not fit memory, 5 bad model or text, 75 stopped early:
what was done is written.)");
  return {app, [flags] { return run_perplexity(*flags); }};
}

}  // namespace longhaul
