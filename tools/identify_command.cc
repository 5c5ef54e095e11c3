// `longhaul identify`: finds a model's retrieval heads, writes their profile, and says how many of
// them are needed.
#include "tools/identify_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/print_stderr.h"
#include "base/sha256.h"
#include "build_info.h"
#include "cluster/comm/mpi_environment.h"
#include "coordinator/fingerprint.h"
#include "kernels/backward/attention_backward.h"
#include "model/head_profile.h"
#include "partition/weight_bytes.h"
#include "tools/flags/given_flags.h"
#include "tools/identify/profile_files.h"
#include "tools/identify/rank_tasks.h"
#include "tools/identify/training_room.h"
#include "tools/identify_flags.h"
#include "tools/identify_search.h"
#include "tools/job/device_choice.h"
#include "tools/job/exit_status.h"
#include "tools/job/job.h"
#include "tools/job/plan_files.h"
#include "tools/job/stop_signal.h"
#include "tools/progress_line.h"

namespace longhaul {
namespace {

constexpr const char* kState = "identify_state.json";
constexpr const char* kConfig = "config.json";  // of a profile
constexpr std::size_t kMaxConfigBytes = std::size_t{64} << 20;

double gib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

std::size_t process_peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

std::string time_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 120) return fmt::format("{} s", whole);
  if (whole < 7200) return fmt::format("{} min", whole / 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

// Rank 0's view of a command that runs.
class Identify {
 public:
  Identify(const IdentifyFlags& flags, RankTasks& tasks, JobRanks& ranks)
      : flags_(flags),
        tasks_(tasks),
        ranks_(ranks),
        model_(tasks.model()),
        spec_(model_.spec()),
        progress_(!flags.eval.no_progress) {}

  int run();

 private:
  void check() const;
  std::vector<IdentifyPart> parts(bool has_profile) const;
  LengthFlag length_flag(IdentifyPart part) const;
  TrainingRoom room() const;
  void check_room(const std::vector<IdentifyPart>& parts) const;
  void estimate() const;
  bool goes_on_from_profile() const {
    return !flags_.overwrites && !flags_.folder.empty() &&
           std::filesystem::exists(flags_.folder / kConfig);
  }
  std::optional<FoundHeads> profile_there() const;
  void write(const FoundHeads& heads);
  void add_scores(std::vector<FoundHeads>& heads, const std::vector<IdentifyPart>& parts);
  Json settings() const;
  FoundHeads found(IdentifyMethod method, std::vector<double> gates) const;
  std::optional<GateState> last_state(std::size_t n_gates) const;
  std::optional<FoundHeads> train();
  void show_step(std::int64_t step, double share);
  void compare(const std::vector<FoundHeads>& all) const;
  std::filesystem::path state_path() const { return flags_.folder / kState; }

  const IdentifyFlags& flags_;
  RankTasks& tasks_;
  JobRanks& ranks_;
  const EvalModel& model_;
  const ModelSpec& spec_;
  ProgressLine progress_;
  JsonObject figures_;
  std::optional<TrainingStep> last_;
  Stopwatch since_start_;
  std::int64_t n_tokens_left_ = 0;
  std::int64_t n_tokens_done_ = 0;
};

// Everything that can be wrong is found here, before the start.
void Identify::check() const {
  const PasskeyConfig& texts = flags_.config.texts;
  const bool on_gpu = chosen_device(flags_.eval.job.device).kind == Device::kCuda;
  require(
      !on_gpu || flags_.method != IdentifyMethod::kGates || spec_.head_dim <= kMostBackwardGpuDims,
      fmt::format("gates are trained on GPUs with a head_dim of at most {}, the model has {}; "
                  "give --device cpu",
                  kMostBackwardGpuDims, spec_.head_dim));
  require(texts.longest <= spec_.max_seq_len,
          fmt::format("texts of {} tokens: the model reads at most {}; give a smaller --max-length",
                      texts.longest, spec_.max_seq_len));
  require(spec_.n_layers * spec_.n_kv_heads > 0, "the model has no heads");
  require(!spec_.token_merging,
          "the model merges tokens (DMC; dmc_window_size in its config.json): its heads have no "
          "other roles to be found");
  const DType weights = model_.source().weight_dtype();
  require(weights == DType::kF32 || weights == DType::kBf16,
          "identify computes with weights of f32 or bf16; give --weights bf16");
  const auto& keys = flags_.eval.job.k_type;
  require(!keys || !is_quantised(*keys),
          "identify computes with keys of f32 or bf16; give another --cache-type-k, or none");
  const auto trained = trained_gates(spec_);
  require(std::find(trained.begin(), trained.end(), 1) != trained.end(),
          "every layer of the model has a window of its own: no head can see every token");
  // Scores are those of the first text, the distance is that of the longest one.
  tasks_.texts().check(
      std::max(flags_.method == IdentifyMethod::kGates ? flags_.config.optimiser.n_steps : 1,
               flags_.target ? texts.n_lengths : 1));
  if (flags_.folder.empty()) return;
  std::filesystem::create_directories(flags_.folder);
}

// What the ranks are to compute; gates only when they are not there already.
std::vector<IdentifyPart> Identify::parts(bool has_profile) const {
  std::vector<IdentifyPart> parts;
  const auto add = [&](IdentifyPart part) {
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  };
  if (!has_profile) add(part_of(flags_.method));
  for (const auto& [word, method] : identify_methods()) {
    if (flags_.compares && method != IdentifyMethod::kGates) add(part_of(method));
  }
  if (flags_.target) add(IdentifyPart::kDistance);
  return parts;
}

LengthFlag Identify::length_flag(IdentifyPart part) const {
  if (part == IdentifyPart::kCopies) return {"--copied-tokens", flags_.config.copies.n_copies};
  return {"--max-length"};
}

// Weights that are used where the files are mapped take no memory of their own; those that are
// made lie once in a process. In GPUs they always are: once in each that a process uses.
TrainingRoom Identify::room() const {
  const JobConfig& job = flags_.eval.job;
  const ModelSource& source = model_.source();
  const ClusterSpec cluster =
      job.cluster.empty() ? ranks_.find_cluster(model_.source()) : read_cluster(job.cluster);
  std::set<int> gpus;
  for (const Rank rank : IdRange<Rank>(cluster.n_ranks())) {
    if (cluster.rank(rank).device == Device::kCuda) gpus.insert(cluster.rank(rank).gpu);
  }
  std::int64_t n_sharing = started_by_mpi_launcher() ? 1 : ranks_.n_ranks;
  if (!gpus.empty())
    n_sharing = std::max<std::int64_t>(1, n_sharing / static_cast<std::int64_t>(gpus.size()));
  const std::int64_t made =
      !gpus.empty() || makes_weights(job, model_.folder())
          ? stage_weight_bytes(spec_, source.weight_dtype(), {0, spec_.n_layers}) / n_sharing
          : 0;
  return {.weight_bytes = made, .usable_bytes = least_usable_bytes(cluster)};
}

void Identify::check_room(const std::vector<IdentifyPart>& parts) const {
  if (parts.empty()) return;
  const TrainingRoom found = room();
  for (const IdentifyPart part : parts) {
    const TrainingShape shape = tasks_.shape_of(part, ranks_.n_ranks);
    if (missing_bytes(part, spec_, shape, found) == 0) continue;
    throw Error(ErrorCode::kOutOfMemory,
                fmt::format("{} of {} tokens: {}", name_of(part), shape.n_tokens,
                            describe_room(part, spec_, shape, found, length_flag(part))));
  }
}

void Identify::estimate() const {
  const TrainingRoom found = room();
  for (const IdentifyPart part : parts(/*has_profile=*/false)) {
    const TrainingShape shape = tasks_.shape_of(part, ranks_.n_ranks);
    fmt::print("{}{}", describe_cost(part, spec_, shape),
               describe_room(part, spec_, shape, found, length_flag(part)));
  }
}

// What gates depend on.
Json Identify::settings() const {
  const IdentifyConfig& c = flags_.config;
  const PasskeyTemplates& t = c.texts.templates;
  JsonArray haystacks;
  for (const auto& path : c.haystacks) haystacks.emplace_back(file_sha256(path));
  JsonObject settings{{"model", model_.settings(ranks_.n_ranks)},
                      {"steps", c.optimiser.n_steps},
                      {"learning_rate", c.optimiser.learning_rate},
                      {"regularisation", c.optimiser.regularisation},
                      {"sink", c.window.sink},
                      {"recent", c.window.recent},
                      {"seed", c.texts.seed},
                      {"records", c.texts.n_records},
                      {"words", c.texts.n_words},
                      {"lengths", JsonArray{Json(c.texts.shortest), Json(c.texts.longest),
                                            Json(c.texts.n_lengths)}},
                      {"templates", JsonArray{Json(t.start), Json(t.end), Json(t.record),
                                              Json(t.question), Json(t.answer), Json(t.separator)}},
                      {"haystacks_sha256", std::move(haystacks)}};
  if (part_of(flags_.method) == IdentifyPart::kCopies)
    settings.emplace_back("copied_tokens", c.copies.n_random);
  return settings;
}

FoundHeads Identify::found(IdentifyMethod method, std::vector<double> gates) const {
  FoundHeads heads{
      .n_layers = spec_.n_layers,
      .n_kv_heads = spec_.n_kv_heads,
      .gates = std::move(gates),
      .window = flags_.config.window,
      .method = method == IdentifyMethod::kGates ? "duo_attention" : std::string(word_of(method)),
      .weights_sha256 = weights_sha256(model_.folder())};
  const std::vector<std::uint8_t> trained = trained_gates(spec_);
  for (std::size_t i = 0; i < trained.size(); ++i) {
    if (trained[i] == 0) heads.gates[i] = 0;  // their layers have windows, whatever is asked
  }
  require_finite_gates(heads);
  heads.details = {{"longhaul", std::string(build_info::kVersion)}, {"settings", settings()}};
  return heads;
}

void Identify::show_step(std::int64_t step, double share) {
  const std::int64_t n_steps = flags_.config.optimiser.n_steps;
  const auto now = static_cast<double>(tasks_.texts().length_at(step)) * share;
  const double rate = (static_cast<double>(n_tokens_done_) + now) / since_start_.seconds();
  std::string text = fmt::format("step {} of {}", step + 1, n_steps);
  if (last_)
    text += fmt::format(", distance {:.3g}, mean gate {:.3f}", last_->distance, last_->mean_gate);
  if (n_tokens_done_ > 0 && rate > 0) {
    text += fmt::format(", {} left", time_text((static_cast<double>(n_tokens_left_) - now) / rate));
  }
  progress_.update(text);
}

// That a run before this one left.
std::optional<GateState> Identify::last_state(std::size_t n_gates) const {
  try {
    return read_state(state_path(), n_gates, settings());
  } catch (const Error& error) {
    if (!flags_.overwrites || error.code() != ErrorCode::kFailedPrecondition) throw;
    return std::nullopt;
  }
}

// Nothing when a stop was asked for.
std::optional<FoundHeads> Identify::train() {
  const std::int64_t n_steps = flags_.config.optimiser.n_steps;
  const auto n_gates = static_cast<std::size_t>(spec_.n_layers * spec_.n_kv_heads);
  const bool keeps_state = !flags_.folder.empty();
  GateState from = initial_gates(n_gates);
  if (keeps_state) {
    if (const auto state = last_state(n_gates)) {
      from = *state;
      progress_.print(fmt::format("going on behind step {} of {}", from.n_steps_done, n_steps));
    }
  }
  for (std::int64_t i = from.n_steps_done; i < n_steps; ++i)
    n_tokens_left_ += tasks_.texts().length_at(i);
  since_start_ = Stopwatch();
  const Json what = settings();
  const TrainingRun run =
      tasks_.train(ranks_, from,
                   {.on_step =
                        [&](const TrainingStep& step, const GateState& state) {
                          last_ = step;
                          n_tokens_done_ += step.n_tokens;
                          n_tokens_left_ -= step.n_tokens;
                          if (keeps_state && state.n_steps_done % flags_.checkpoint_every == 0)
                            write_state(state_path(), state, what);
                        },
                    .on_progress = [&](std::int64_t step, double share) { show_step(step, share); },
                    .stop_requested = stop_requested});
  progress_.clear();
  if (keeps_state) write_state(state_path(), run.state, what);
  if (run.state.n_steps_done < n_steps) {
    print_stderr("longhaul: stopped behind step {} of {}; the same command goes on from there\n",
                 run.state.n_steps_done, n_steps);
    return std::nullopt;
  }
  FoundHeads heads = found(IdentifyMethod::kGates, run.state.gates);
  if (!run.steps.empty()) {
    const TrainingStep& last = run.steps.back();
    const double seconds = since_start_.seconds();
    figures_ = {{"distance", last.distance},
                {"mean_gate", last.mean_gate},
                {"seconds", seconds},
                {"peak_bytes", static_cast<std::int64_t>(run.peak_bytes)}};
    fmt::print(
        "{} steps in {:.1f} s, {:.2f} s each; {:.2f} GiB of this process, {:.3f} of rows,\n"
        "keys and activations; distance {:.4g}, mean gate {:.4f}\n",
        run.steps.size(), seconds, seconds / static_cast<double>(run.steps.size()),
        gib(process_peak_bytes()), gib(run.peak_bytes), last.distance, last.mean_gate);
  }
  heads.details.emplace_back("figures", figures_);
  return heads;
}

// What each method says of each head, highest gate of the first method first.
void Identify::compare(const std::vector<FoundHeads>& all) const {
  fmt::print("{:<10}", "layer:head");
  const auto width = [](const FoundHeads& heads) {
    return std::max<std::size_t>(7, heads.method.size());
  };
  for (const FoundHeads& heads : all) fmt::print(" {:>{}}", heads.method, width(heads));
  fmt::print("\n");
  const std::vector<std::size_t> order = ranking(all.front().gates);
  const auto n_kv_heads = static_cast<std::size_t>(spec_.n_kv_heads);
  constexpr std::size_t kMost = 24;
  for (std::size_t i = 0; i < std::min(kMost, order.size()); ++i) {
    fmt::print("{:<10}", fmt::format("{}:{}", order[i] / n_kv_heads, order[i] % n_kv_heads));
    for (const FoundHeads& heads : all)
      fmt::print(" {:>{}.4f}", heads.gates[order[i]], width(heads));
    fmt::print("\n");
  }
}

// The profile that a run before this one wrote, with the same settings: nothing is left to do but
// what is asked for beside it.
std::optional<FoundHeads> Identify::profile_there() const {
  if (!goes_on_from_profile()) return std::nullopt;
  const std::filesystem::path file = flags_.folder / kConfig;
  const Json config = parse_json(read_file(file, kMaxConfigBytes), file.string());
  const JsonField root(config, file.string());
  const std::string remedy = "another output folder, or --overwrite";
  if (!root.find("settings") || !root.find("method")) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} holds a profile that this command did not make; give {}",
                            flags_.folder.string(), remedy));
  }
  FoundHeads heads = found(flags_.method, read_head_profile(flags_.folder).gates);
  std::vector<std::string> differ = differences(root.at("settings").json(), settings());
  if (const std::string& method = root.at("method").as_string(); method != heads.method)
    differ.push_back(fmt::format("method: was {}, now {}", method, heads.method));
  if (differ.empty()) return heads;
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} holds a profile of other settings: {}; give the same ones, {}",
                          flags_.folder.string(), fmt::join(differ, "; "), remedy));
}

void Identify::write(const FoundHeads& heads) {
  for (const char* of_another : {kSharePoints, kSharePicture})
    std::filesystem::remove(flags_.folder / of_another);
  write_profile(flags_.folder, heads);
  replace_file(flags_.folder / "heads.svg",
               gates_picture(heads, model_.folder().path().filename().string()));
  std::filesystem::remove(state_path());
  fmt::print("written: {}\n", flags_.folder.string());
}

// Of the methods that need forward passes only: those that are to be compared, and the one asked
// for, which comes first, unless `heads` has it.
void Identify::add_scores(std::vector<FoundHeads>& heads, const std::vector<IdentifyPart>& parts) {
  const Stopwatch watch;
  std::vector<IdentifyPart> finders;
  for (const IdentifyPart part : parts) {
    if (part != IdentifyPart::kTraining && part != IdentifyPart::kDistance) finders.push_back(part);
  }
  auto scores = tasks_.score(ranks_, finders, [&](IdentifyPart part, double share) {
    progress_.update(fmt::format("{}: {:.0f} %", name_of(part), 100 * share));
  });
  progress_.clear();
  fmt::print("forward passes of the other methods: {:.1f} s\n", watch.seconds());
  const bool has_first = !heads.empty();
  for (const auto& [word, method] : identify_methods()) {
    const bool is_first = method == flags_.method;
    if (method == IdentifyMethod::kGates || (is_first ? has_first : !flags_.compares)) continue;
    FoundHeads scored = found(
        method, method == IdentifyMethod::kRazor ? scores.at(word) : gates_of(scores.at(word)));
    scored.details.emplace_back("scores",
                                JsonArray(scores.at(word).begin(), scores.at(word).end()));
    heads.insert(is_first ? heads.begin() : heads.end(), std::move(scored));
  }
}

int Identify::run() {
  check();
  progress_.print(fmt::format("longhaul identify: {}", model_.description()));
  if (flags_.estimates) {
    estimate();
    return kExitDone;
  }
  require(!flags_.folder.empty() || flags_.compares, "where to? Give -o FOLDER, or --compare");
  std::optional<IdentifySearch> search;
  if (flags_.target) search.emplace(flags_, tasks_, ranks_, progress_);
  std::vector<FoundHeads> all;
  const auto there = profile_there();
  const std::vector<IdentifyPart> todo = parts(there.has_value());
  check_room(todo);
  if (there) {
    fmt::print("{} has the profile already\n", flags_.folder.string());
    all.push_back(*there);
  } else if (flags_.method == IdentifyMethod::kGates) {
    fmt::print("{}", describe_training(spec_, tasks_.shape_of(todo.front(), ranks_.n_ranks)));
    const auto heads = train();
    if (!heads) return kExitStopped;
    all.push_back(*heads);
  }
  if (flags_.compares || all.empty()) add_scores(all, todo);
  fmt::print("{}", ranking_text(all.front(), 16));
  if (flags_.compares) compare(all);
  if (!flags_.folder.empty() && !there) write(all.front());
  if (search && !search->run(all.front(), settings())) return kExitStopped;
  return kExitDone;
}

}  // namespace

Command add_identify_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "identify", "Find the heads of a model that need every token, and write their profile");
  const auto flags = std::make_shared<IdentifyFlags>();
  add_identify_flags(*app, *flags);
  app->footer(R"(Examples:
  The embedded model, with records of the form that it was trained on:
    longhaul identify -m examples/needle/model -o heads --record-form codes \
      --min-length 256 --max-length 1K --steps 200
  A large model on four ranks, as published; the same command goes on after a stop:
    mpirun -n 4 longhaul identify -m MODEL -o heads --haystack book.txt
  What that takes:
    longhaul identify -m MODEL --estimate

docs/identify.md says what the methods are.

)" + exit_status_help());
  return {app, [app, flags] {
            install_stop_signals();
            fill_in_templates(flags->config.texts, *app);
            leave_out_layouts(flags->eval.job);
            flags->eval.job.flags_given = given_flags(*app);
            RankTasks tasks(flags->config, flags->eval.job, [flags] {
              return std::make_shared<const EvalModel>(open_folder(flags->eval), flags->eval.job);
            });
            return run_job(
                flags->eval.job, [&] { return open_source(flags->eval); },
                [&](JobRanks& ranks) {
                  check_identify_flags(*app, *flags);
                  return Identify(*flags, tasks, ranks).run();
                },
                [&](Communicator& comm, ModelSource& model, const std::string& order) {
                  tasks.run(comm, model, order);
                });
          }};
}

}  // namespace longhaul
