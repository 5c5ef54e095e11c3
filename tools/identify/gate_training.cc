#include "tools/identify/gate_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "coordinator/fingerprint.h"
#include "tools/identify/json_numbers.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxStateBytes = std::size_t{64} << 20;

// A gate that is not finite once never is again. `what` is "the distance is" or the like.
void require_finite_step(std::span<const double> values, std::int64_t step, std::string_view what,
                         std::string_view cause) {
  const auto broken =
      std::find_if_not(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
  if (broken == values.end()) return;
  throw Error(ErrorCode::kCorruptData,
              fmt::format("step {}: {} {}; {}", step + 1, what, *broken, cause));
}

constexpr std::string_view kBrokenModel =
    "the model's weights or the numbers that it computes from them are broken (longhaul run "
    "--verify-weights compares its files with their checksums)";
constexpr std::string_view kTooLarge = "give a smaller --learning-rate or --regularisation";

}  // namespace

TrainingRun train_gates(const TrainingArgs& args, Communicator& comm) {
  TwoWayPass pass(args.weights, args.two_way, comm);
  const std::vector<std::uint8_t> trained = trained_gates(args.weights.spec());
  TrainingRun run{.state = args.state, .steps = {}};
  while (run.state.n_steps_done < args.optimiser.n_steps) {
    const std::int64_t number = run.state.n_steps_done;
    if (args.stops && args.stops(number)) break;
    const Stopwatch watch;
    const PasskeyText text = args.text_of(number);
    clamp_gates(run.state);
    const TwoWayResult result =
        pass.run(text.tokens, text.n_answer, run.state.gates, TwoWayPass::Wants::kGradient);
    require_finite_step(std::span(&result.distance, 1), number,
                        "the distance from the dense model is", kBrokenModel);
    require_finite_step(result.d_gates, number, "a gradient of the gates is", kBrokenModel);
    const TrainingStep step{.number = number,
                            .n_tokens = static_cast<std::int64_t>(text.tokens.size()),
                            .distance = result.distance,
                            .mean_gate = mean_gate(run.state.gates, trained),
                            .seconds = watch.seconds()};
    update_gates(run.state, result.d_gates, trained, args.optimiser);
    require_finite_step(run.state.gates, number, "a gate becomes", kTooLarge);
    run.steps.push_back(step);
    if (args.on_step) args.on_step(step, run.state);
  }
  run.peak_bytes = pass.peak_bytes();
  return run;
}

void write_state(const std::filesystem::path& path, const GateState& state, const Json& settings) {
  const Json json = JsonObject{{"version", 1},
                               {"settings", settings},
                               {"steps_done", state.n_steps_done},
                               {"gates", to_array(state.gates)},
                               {"mean", to_array(state.mean)},
                               {"square", to_array(state.square)}};
  replace_file(path, to_text(json) + "\n");
}

std::optional<GateState> read_state(const std::filesystem::path& path, std::size_t n_gates,
                                    const Json& settings) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const Json json = parse_json(read_file(path, kMaxStateBytes), path.string());
  const JsonField root(json, path.string());
  root.at("version").as_integer(1, 1);
  const std::vector<std::string> differ = differences(root.at("settings").json(), settings);
  if (!differ.empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} was begun with other settings: {}; give the same ones, another "
                            "output folder, or --overwrite",
                            path.string(), fmt::join(differ, "; ")));
  }
  GateState state{.gates = numbers_of(root.at("gates"), n_gates),
                  .mean = numbers_of(root.at("mean"), n_gates),
                  .square = numbers_of(root.at("square"), n_gates)};
  state.n_steps_done = root.at("steps_done").as_integer(0, std::int64_t{1} << 40);
  return state;
}

}  // namespace longhaul
