#include "tools/identify/rank_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "cluster/comm/host_info.h"
#include "tools/eval/needle_text.h"
#include "tools/eval/output_files.h"
#include "tools/identify/json_numbers.h"
#include "tools/job/device_choice.h"
#include "worker/device_communicator.h"

namespace longhaul {
namespace {

// Collective over comm.
bool any_has_gpu(Communicator& comm, const DeviceId& device) {
  std::array<std::int64_t, 1> gpus = {device.kind == Device::kCuda ? 1 : 0};
  comm.all_reduce_max(std::span<std::int64_t>(gpus));
  return gpus[0] != 0;
}

// Tokens that records are hidden in: of files, or enough of made-up prose.
std::vector<std::int32_t> hay_of(const EvalModel& model, const IdentifyConfig& config) {
  std::vector<std::int32_t> hay;
  const auto add = [&](std::string_view text) {
    const auto tokens = model.encode(text);
    hay.insert(hay.end(), tokens.begin(), tokens.end());
  };
  for (const std::filesystem::path& path : config.haystacks) add(open_text(path).text());
  if (!config.haystacks.empty()) return hay;
  constexpr std::size_t kPieceCharacters = 1 << 16;
  RandomDraws draws(config.texts.seed);
  while (static_cast<std::int64_t>(hay.size()) < config.texts.longest)
    add(made_up_prose(draws, kPieceCharacters) + "\n\n");
  return hay;
}

}  // namespace

RankTasks::RankTasks(const IdentifyConfig& config, const JobConfig& job,
                     std::function<std::shared_ptr<const EvalModel>()> open)
    : config_(config), job_(job), open_(std::move(open)) {}

const EvalModel& RankTasks::model() {
  std::call_once(opened_, [&] {
    model_ = open_();
    texts_ = std::make_unique<PasskeyTexts>(
        config_.texts, model_->start(), hay_of(*model_, config_),
        [model = model_](std::string_view text) { return model->encode(text); });
  });
  return *model_;
}

const PasskeyTexts& RankTasks::texts() {
  model();
  return *texts_;
}

TwoWayConfig RankTasks::two_way(StreamRef stream) const {
  const Workload formats = formats_of(job_, model_->source().weight_dtype());
  return {.window = config_.window,
          .stream = stream,
          .kv_type = formats.k_type,
          .block_size = formats.block_size};
}

void RankTasks::run(Communicator& comm, ModelSource& source, const std::string& order) {
  model();
  DeviceQueue queue(chosen_device(job_.device, host_info(comm).local_rank));
  const std::shared_ptr<const Weights> weights = source.all_layers(queue.device());
  const auto with_gpus = communicator_of_device(
      comm, queue.stream(),
      any_has_gpu(comm, queue.device()) ? GpuTransport::kNcclWherePossible : GpuTransport::kStaged);
  const RankOn on{*weights, with_gpus ? *with_gpus : comm, queue.stream()};
  const Json json = parse_json(order, "the order of rank 0");
  const JsonField root(json, "the order of rank 0");
  const std::string& what = root.at("what").as_string();
  if (what == "train") return run_training(on, root);
  if (what == "score") return run_scores(on, root);
  run_distance(on, root);
}

TrainingRun RankTasks::train(JobRanks& ranks, const GateState& from, Watch watch) {
  watch_ = std::move(watch);
  ranks.together(model().source(), to_text(JsonObject{{"what", "train"},
                                                      {"steps_done", from.n_steps_done},
                                                      {"gates", to_array(from.gates)},
                                                      {"mean", to_array(from.mean)},
                                                      {"square", to_array(from.square)}}));
  return std::move(training_);
}

void RankTasks::run_training(const RankOn& on, const JsonField& order) {
  Communicator& comm = on.comm;
  GateState state{.gates = numbers_of(order.at("gates")),
                  .mean = numbers_of(order.at("mean")),
                  .square = numbers_of(order.at("square"))};
  state.n_steps_done = order.at("steps_done").as_integer(0, std::int64_t{1} << 40);
  const bool leads = comm.rank() == 0;
  std::int64_t step = state.n_steps_done;
  TrainingArgs args{.weights = on.weights,
                    .two_way = two_way(on.stream),
                    .optimiser = config_.optimiser,
                    .text_of = [&](std::int64_t number) { return texts_->at(number); },
                    .state = std::move(state)};
  // Rank 0 hears of signals, and all stop before the same step.
  args.stops = [&](std::int64_t number) {
    step = number;
    std::array<std::int64_t, 1> stop = {leads && watch_.stop_requested() ? 1 : 0};
    comm.all_reduce_max(std::span<std::int64_t>(stop));
    return stop[0] != 0;
  };
  if (leads) {
    args.on_step = watch_.on_step;
    args.two_way.on_progress = [&](double share) { watch_.on_progress(step, share); };
  }
  TrainingRun run = train_gates(args, comm);
  if (leads) training_ = std::move(run);
}

TrainingShape RankTasks::shape_of(IdentifyPart part, std::int64_t n_ranks) {
  const DType weights = model().source().weight_dtype();
  TrainingShape shape{
      .window = config_.window,
      .n_tokens = config_.texts.longest,
      .block_size = usual_block_size(job_),
      .n_ranks = n_ranks,
      .kv_value_bytes = two_way(StreamRef::cpu()).kv_type == KvType::kBf16 ? 2U : 4U,
      .weight_dtype = weights};
  switch (part) {
    case IdentifyPart::kTraining:
    case IdentifyPart::kDistance:
      shape.n_answer = texts_->at(0).n_answer;
      break;
    case IdentifyPart::kCopies:
      shape.n_tokens = copies().n_random * copies().n_copies;
      break;
    case IdentifyPart::kNeedle: {
      const PasskeyText text = texts_->at(0);
      shape.n_tokens = static_cast<std::int64_t>(text.tokens.size());
      shape.n_answer = text.n_answer;
      break;
    }
    case IdentifyPart::kRepetition:
      shape.n_tokens = static_cast<std::int64_t>(twice_text().size());
      break;
  }
  return shape;
}

CopyText RankTasks::copies() const {
  CopyText copies = config_.copies;
  copies.n_random = std::min(copies.n_random, model_->spec().max_seq_len / copies.n_copies);
  copies.seed = config_.texts.seed;
  return copies;
}

// The text without questions, twice.
std::vector<std::int32_t> RankTasks::twice_text() const {
  const PasskeyText text = texts_->at(0);
  std::vector<std::int32_t> twice(text.tokens.begin(), text.tokens.end() - text.n_answer);
  const auto n_most = static_cast<std::size_t>(
      std::min<std::int64_t>(config_.texts.longest, model_->spec().max_seq_len) / 2);
  twice.resize(std::min(twice.size(), n_most));
  const auto n_first = static_cast<std::int64_t>(twice.size());
  for (std::int64_t i = 0; i < n_first; ++i) twice.push_back(twice[static_cast<std::size_t>(i)]);
  return twice;
}

std::map<std::string, std::vector<double>> RankTasks::score(
    JobRanks& ranks, const std::vector<IdentifyPart>& parts,
    std::function<void(IdentifyPart, double share)> on_progress) {
  on_score_progress_ = std::move(on_progress);
  JsonArray numbers;
  for (const IdentifyPart part : parts) numbers.emplace_back(static_cast<std::int64_t>(part));
  ranks.together(model().source(),
                 to_text(JsonObject{{"what", "score"}, {"parts", std::move(numbers)}}));
  return std::move(scores_);
}

void RankTasks::run_scores(const RankOn& on, const JsonField& order) {
  Communicator& comm = on.comm;
  const bool leads = comm.rank() == 0;
  IdentifyPart now = IdentifyPart::kCopies;
  TwoWayConfig config = two_way(on.stream);
  if (leads) config.on_progress = [&](double share) { on_score_progress_(now, share); };
  TwoWayPass pass(on.weights, config, comm);
  const ModelSpec& spec = on.weights.spec();
  std::map<std::string, std::vector<double>> found;
  const JsonField parts = order.at("parts");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    now = static_cast<IdentifyPart>(
        parts.at(i).as_integer(0, static_cast<std::int64_t>(IdentifyPart::kRepetition)));
    if (now == IdentifyPart::kCopies) {
      const CopyScores copied = copy_scores(pass, spec, comm, copies());
      found["echo"] = copied.echo;
      found["induction"] = copied.induction;
      found["razor"] = razor_gates(copied);
    } else if (now == IdentifyPart::kNeedle) {
      const PasskeyText text = texts_->at(0);
      found["needle"] = needle_scores(pass, spec, comm, text.tokens, text.n_answer);
    } else {
      const std::vector<std::int32_t> twice = twice_text();
      found["repetition"] =
          repetition_scores(pass, spec, comm, twice, static_cast<std::int64_t>(twice.size() / 2));
    }
  }
  if (leads) scores_ = std::move(found);
}

double RankTasks::distance(JobRanks& ranks, const std::vector<double>& gates) {
  ranks.together(model().source(),
                 to_text(JsonObject{{"what", "distance"}, {"gates", to_array(gates)}}));
  if (std::isfinite(distance_)) return distance_;
  throw Error(ErrorCode::kCorruptData,
              fmt::format("the distance from the dense model is {}; the model's weights or the "
                          "numbers that it computes from them are broken",
                          distance_));
}

void RankTasks::run_distance(const RankOn& on, const JsonField& order) {
  TwoWayPass pass(on.weights, two_way(on.stream), on.comm);
  std::int64_t longest = 0;
  for (std::int64_t step = 0; step < config_.texts.n_lengths; ++step) {
    if (texts_->length_at(step) > texts_->length_at(longest)) longest = step;
  }
  const PasskeyText text = texts_->at(longest);
  const TwoWayResult result = pass.run(text.tokens, text.n_answer, numbers_of(order.at("gates")),
                                       TwoWayPass::Wants::kDistance);
  if (on.comm.rank() == 0) distance_ = result.distance / std::max(result.size, 1e-300);
}

}  // namespace longhaul
