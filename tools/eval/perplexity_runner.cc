#include "tools/eval/perplexity_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace longhaul {
namespace {

constexpr SequenceId kText{0};

void add_scores(PolicyCurve& curve, const StepDone& done, std::int64_t end) {
  std::int64_t position = end - static_cast<std::int64_t>(done.scored.size());
  for (const PickedToken& token : done.scored)
    curve.tokens.push_back({.position = position++, .nll = -static_cast<double>(token.logprob)});
}

std::span<const std::int32_t> part_of(std::span<const std::int32_t> tokens, Extent positions) {
  return tokens.subspan(static_cast<std::size_t>(positions.begin),
                        static_cast<std::size_t>(positions.size()));
}

}  // namespace

PolicyCurve score_with_cache(StepRunner& steps, const ScoreArgs& args) {
  PolicyCurve curve;
  steps.run(OpenSequence{.sequence = kText, .sampling = {}});
  const Stopwatch watch;
  const std::int64_t n_read = steps.prefill(
      {.sequence = kText,
       .tokens = args.tokens,
       .after = AfterPrefill::kPromptEnd,
       .score_logprobs = 0},
      [&](const StepDone& done, std::int64_t end) {
        add_scores(curve, done, end);
        curve.kv_bytes = std::max(curve.kv_bytes, done.kv_bytes_in_use);
        args.on_progress(fmt::format("scored {} of {} tokens", end, args.tokens.size()));
        return !args.stop_requested();
      });
  curve.seconds = watch.seconds();
  curve.is_complete = n_read == std::ssize(args.tokens);
  steps.run(DropSequences{.sequences = {kText}});
  return curve;
}

PolicyCurve score_with_recompute(StepRunner& steps, const ScoreArgs& args, std::int64_t window,
                                 std::int64_t stride) {
  require(window >= 1 && stride >= 1, fmt::format("window {}, stride {}", window, stride));
  PolicyCurve curve;
  const auto n_tokens = static_cast<std::int64_t>(args.tokens.size());
  for (std::int64_t t = 1; t < n_tokens; t += stride) {
    if (args.stop_requested()) {
      curve.is_complete = false;
      break;
    }
    const Extent before{std::max<std::int64_t>(0, t - window), t};
    const Stopwatch watch;
    steps.run(OpenSequence{.sequence = kText, .sampling = {}});
    steps.prefill({.sequence = kText, .tokens = part_of(args.tokens, before)});
    const StepDone done = steps.prefill({.sequence = kText,
                                         .tokens = part_of(args.tokens, {t, t + 1}),
                                         .after = AfterPrefill::kPromptEnd,
                                         .score_logprobs = 0});
    curve.seconds += watch.seconds();
    curve.kv_bytes = std::max(curve.kv_bytes, done.kv_bytes_in_use);
    add_scores(curve, done, t + 1);
    steps.run(DropSequences{.sequences = {kText}});
    args.on_progress(fmt::format("recomputed the window of token {} of {}", t, n_tokens));
  }
  return curve;
}

std::vector<std::int32_t> sample_text(StepRunner& steps, const SampleTextArgs& args) {
  const std::vector<std::int32_t>& start = args.model.start();
  const auto n_start = static_cast<std::int64_t>(start.size());
  require(n_start > 0,
          "this tokenizer puts nothing in front of a text: the model cannot begin one");
  require(n_start < args.max_length, fmt::format("pieces of {} tokens", args.max_length));
  std::vector<std::int32_t> text;
  for (std::int64_t first = 0; static_cast<std::int64_t>(text.size()) < args.n_tokens;
       first += kPiecesTogether) {
    std::vector<std::vector<std::int32_t>> pieces(kPiecesTogether, start);
    DecodeBatch batch;
    const auto take = [&](const PickedToken& picked) {
      auto& piece = pieces[static_cast<std::size_t>(picked.sequence.value)];
      // Models trained on pieces without an end token announce the next piece's beginning.
      if (args.model.is_end(picked.token) || picked.token == start.front()) return;
      piece.push_back(picked.token);
      if (static_cast<std::int64_t>(piece.size()) < args.max_length)
        batch.rows.push_back({picked.sequence, picked.token});
    };
    DropSequences drop;
    for (std::int64_t i = 0; i < kPiecesTogether; ++i) {
      const SequenceId id{i};
      SamplingParams sampling;
      sampling.temperature = 1;
      sampling.seed = args.seed * 1'000'003 + static_cast<std::uint64_t>(first + i);
      steps.run(OpenSequence{.sequence = id, .sampling = sampling});
      take(steps.prefill({.sequence = id, .tokens = start, .after = AfterPrefill::kSample})
               .picked.at(0));
      drop.sequences.push_back(id);
    }
    while (!batch.rows.empty()) {
      if (args.stop_requested()) throw Error(ErrorCode::kCancelled, "stopped while sampling");
      const StepDone done = steps.run(batch);
      batch.rows.clear();
      for (const PickedToken& picked : done.picked) take(picked);
    }
    steps.run(drop);
    for (const auto& piece : pieces) text.insert(text.end(), piece.begin(), piece.end());
    args.on_progress(fmt::format("sampled {} of {} tokens", text.size(), args.n_tokens));
  }
  text.resize(static_cast<std::size_t>(args.n_tokens));
  return text;
}

}  // namespace longhaul
