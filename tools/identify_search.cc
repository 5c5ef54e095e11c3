#include "tools/identify_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "base/sha256.h"
#include "build_info.h"
#include "tools/eval/one_replica.h"
#include "tools/identify/share_points.h"
#include "tools/job/stop_signal.h"

namespace longhaul {
namespace {

constexpr std::int64_t kAnswerTokens = 32;

// Of other texts than those of training.
std::uint64_t seed_of(const PasskeyConfig& texts) { return texts.seed + 1; }

std::vector<PlannedDocument> documents_of(const PasskeyConfig& texts) {
  std::vector<double> depths;
  for (int i = 0; i <= 10; ++i) depths.push_back(0.1 * i);
  return plan_documents({.lengths = {texts.longest}, .depths = depths, .seed = seed_of(texts)});
}

}  // namespace

IdentifySearch::IdentifySearch(const IdentifyFlags& flags, RankTasks& tasks, JobRanks& ranks,
                               ProgressLine& progress)
    : flags_(flags),
      tasks_(tasks),
      ranks_(ranks),
      progress_(progress),
      documents_(documents_of(flags.config.texts)),
      runner_({.model = tasks.model(),
               .texts = flags.needle,
               .seed = seed_of(flags.config.texts),
               .max_answer_tokens = kAnswerTokens,
               .n_parallel = flags.eval.job.n_parallel,
               .on_progress = [this](const std::string& text) { progress_.update(text); },
               .stop_requested = stop_requested},
              flags.config.texts.longest) {
  const std::int64_t longest = flags.config.texts.longest;
  const std::int64_t tail = runner_.tail_tokens(documents_);
  try {
    runner_.check(documents_);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("--target asks about records in {} tokens: {}; give a "
                                          "larger --max-length",
                                          longest, error.what()));
  }
  const std::int64_t most = tasks.model().spec().max_seq_len;
  require(longest + tail <= most,
          fmt::format("--target asks questions of up to {} tokens about {}: the model reads at "
                      "most {}; give a --max-length of at most {}",
                      tail, longest, most, most - tail));
  workload_ = tasks.model().workload(
      {.document_tokens = longest, .tail_tokens = tail, .n_sequences = flags.eval.job.n_parallel},
      ranks.n_ranks);
}

std::optional<TriedShare> IdentifySearch::attempt(const FoundHeads& heads, std::int64_t n_heads) {
  if (stop_requested()) return std::nullopt;
  const EvalModel& model = tasks_.model();
  HeadRoles roles{.n_layers = heads.n_layers,
                  .n_kv_heads = heads.n_kv_heads,
                  .roles = std::vector<HeadRole>(heads.gates.size(), HeadRole::kStreaming),
                  .sink = heads.window.sink,
                  .recent = heads.window.recent};
  std::vector<double> gates(heads.gates.size());
  const std::vector<std::size_t> order = ranking(heads.gates);
  for (std::size_t i = 0; i < static_cast<std::size_t>(n_heads); ++i) {
    roles.roles[order[i]] = HeadRole::kRetrieval;
    gates[order[i]] = 1;
  }
  TriedShare tried{.n_heads = n_heads, .distance = tasks_.distance(ranks_, gates)};
  const JobWork work{.model = &model.source(),
                     .heads = duo_attention_heads(model.spec(), roles),
                     .profile = {},
                     .workload = workload_};
  bool is_whole = false;
  on_one_replica(ranks_, flags_.eval.job, work, [&](const ReplicaRun& replica) {
    StepRunner steps(replica.link, replica.steps);
    const NeedleRun run = runner_.run(steps, fmt::format("{} heads", n_heads), roles, documents_);
    is_whole = run.readings.size() == documents_.size();
    tried.right = score_of(run).rate().value_or(0);
  });
  if (!is_whole) return std::nullopt;
  return tried;
}

bool IdentifySearch::run(const FoundHeads& heads, const Json& settings) {
  const auto n_heads = static_cast<std::int64_t>(heads.gates.size());
  const std::filesystem::path file =
      flags_.folder.empty() ? std::filesystem::path() : flags_.folder / kSharePoints;
  SharePoints points(file, JsonObject{{"longhaul", std::string(build_info::kVersion)},
                                      {"method", heads.method},
                                      {"gates_sha256", sha256_of(gates_tsv(heads))},
                                      {"settings", settings}});
  if (!points.differences().empty())
    progress_.print(fmt::format("{} holds points of other settings ({}): they are tried again",
                                file.string(), fmt::join(points.differences(), "; ")));
  const std::size_t n_found = points.size();
  // All heads, none, and the halves between.
  const auto n_most = static_cast<std::int64_t>(
      2 + std::ceil(std::log2(static_cast<double>(std::max<std::int64_t>(2, n_heads)))));
  std::int64_t number = 0;
  const auto search = find_smallest_share(
      n_heads, *flags_.target, [&](std::int64_t n) -> std::optional<TriedShare> {
        ++number;
        if (const auto found = points.find(n)) return found;
        progress_.update(
            fmt::format("{} of {} heads: point {} of at most {}", n, n_heads, number, n_most));
        const auto tried = attempt(heads, n);
        if (tried) points.add(*tried);
        return tried;
      });
  progress_.clear();
  if (!search) {
    print_stderr(
        "longhaul: stopped with {} points of the search done; the same command goes "
        "on from there\n",
        points.size());
    return false;
  }
  if (n_found > 0)
    fmt::print("{} points were tried before, {} now\n", n_found, points.size() - n_found);
  fmt::print("{}", to_text(*search, n_heads, *flags_.target));
  if (!flags_.folder.empty())
    replace_file(flags_.folder / kSharePicture, to_picture(*search, n_heads));
  return true;
}

}  // namespace longhaul
