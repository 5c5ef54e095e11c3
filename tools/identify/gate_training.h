// The optimisation of gates, step by step: a text, the two-way pass, an AdamW step; with a state
// that is written now and then, so that training goes on where it was stopped.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "base/json.h"
#include "tools/identify/gate_optimiser.h"
#include "tools/identify/passkey_texts.h"
#include "tools/identify/two_way_pass.h"

namespace longhaul {

// What a step found, before it changed the gates.
struct TrainingStep {
  std::int64_t number = 0;  // from 0
  std::int64_t n_tokens = 0;
  double distance = 0;
  double mean_gate = 0;
  double seconds = 0;
};

struct TrainingRun {
  GateState state;
  std::vector<TrainingStep> steps;  // of this run alone
  std::size_t peak_bytes = 0;       // besides weights, of this rank
};

struct TrainingArgs {
  const Weights& weights;
  TwoWayConfig two_way;
  GateOptimiserConfig optimiser;
  std::function<PasskeyText(std::int64_t step)> text_of;  // the same on all ranks
  GateState state;                                        // to begin or to go on with
  // Asked before every step, on every rank, which must all give the same answer; true: the run ends
  // there.
  std::function<bool(std::int64_t step)> stops = {};
  std::function<void(const TrainingStep&, const GateState&)> on_step = {};
};

// Collective over comm. The same gates on all ranks, and the same bits for the same arguments on as
// many ranks. Blocks while it computes. Throws kCorruptData, on all ranks and naming the step, when
// a distance, its gradient or a gate is not finite: on_step does not hear of that step.
TrainingRun train_gates(const TrainingArgs& args, Communicator& comm);

// --- States on disk: JSON, replaced in one move ---

// `settings`: what gates depend on; a state goes on only under the same.
void write_state(const std::filesystem::path& path, const GateState& state, const Json& settings);
// Nothing when there is no such file. Throws kFailedPrecondition, naming what differs, for a state
// of other settings; kCorruptData for a broken one.
std::optional<GateState> read_state(const std::filesystem::path& path, std::size_t n_gates,
                                    const Json& settings);

}  // namespace longhaul
