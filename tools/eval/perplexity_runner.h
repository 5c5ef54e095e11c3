// Scores a text token by token under one policy, and lets a model write a text of its own.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/eval/eval_model.h"
#include "tools/eval/perplexity_results.h"
#include "tools/eval/step_runner.h"

namespace longhaul {

// Curves have no name and no description yet.
struct ScoreArgs {
  std::span<const std::int32_t> tokens;
  std::function<void(const std::string&)> on_progress;
  std::function<bool()> stop_requested;  // true: what is scored so far is the result
};

// One pass over the text with the caches of these ranks: tokens[i] given the ones before it, as far
// as the masks of the ranks' heads show them.
PolicyCurve score_with_cache(StepRunner& steps, const ScoreArgs& args);

// Every stride-th token from position 1 on, given the last `window` tokens before it and nothing
// else: a new sequence each time, at positions from 0 on ("sliding window with re-computation",
// Xiao et al. 2023, arXiv 2309.17453, figure 1 c). The ranks' heads see everything.
PolicyCurve score_with_recompute(StepRunner& steps, const ScoreArgs& args, std::int64_t window,
                                 std::int64_t stride);

// Sequences that sample_text has open.
constexpr std::int64_t kPiecesTogether = 16;

struct SampleTextArgs {
  const EvalModel& model;
  std::int64_t n_tokens = 0;    // of the whole text
  std::int64_t max_length = 0;  // of one piece: no longer than the model was trained for
  std::uint64_t seed = 0;
  std::function<void(const std::string&)> on_progress;
  std::function<bool()> stop_requested;
};
// What the model itself writes at temperature 1, piece after piece, each begun afresh behind the
// tokenizer's leading tokens and ended by an end token or max_length: text of which the model knows
// the distribution exactly as long as it sees what its training showed it. Throws kCancelled when a
// stop is requested, kInvalidArgument for a tokenizer that puts nothing in front of a text.
std::vector<std::int32_t> sample_text(StepRunner& steps, const SampleTextArgs& args);

}  // namespace longhaul
