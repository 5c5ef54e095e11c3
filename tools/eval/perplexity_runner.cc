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

// Runs a step and counts its time and memory.
StepDone counted(StepRunner& steps, const StepCommand& command, PolicyCurve& curve) {
  StepDone done = steps.run(command);
  curve.seconds += done.seconds;
  curve.kv_bytes = std::max(curve.kv_bytes, done.kv_bytes_in_use);
  return done;
}

std::vector<std::int32_t> copy_of(std::span<const std::int32_t> tokens) {
  return {tokens.begin(), tokens.end()};
}

}  // namespace

PolicyCurve score_with_cache(const ScoreArgs& args, const HeadRoles& roles) {
  PolicyCurve curve;
  StepRunner steps(args.model.worker_config(roles));
  steps.run(OpenSequence{.sequence = kText, .sampling = {}});
  const auto n_tokens = static_cast<std::int64_t>(args.tokens.size());
  const std::int64_t chunk_len = args.model.flags().chunk_len;
  for (std::int64_t begin = 0; begin < n_tokens && !args.stop_requested(); begin += chunk_len) {
    const std::int64_t end = std::min(n_tokens, begin + chunk_len);
    const auto chunk =
        args.tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    const StepDone done = counted(
        steps, PrefillChunk{.sequence = kText, .tokens = copy_of(chunk), .score_logprobs = 0},
        curve);
    add_scores(curve, done, end);
    args.on_progress(fmt::format("scored {} of {} tokens", end, n_tokens));
  }
  return curve;
}

PolicyCurve score_with_recompute(const ScoreArgs& args, std::int64_t window, std::int64_t stride) {
  require(window >= 1 && stride >= 1, fmt::format("window {}, stride {}", window, stride));
  const ModelSpec& spec = args.model.spec();
  PolicyCurve curve;
  StepRunner steps(
      args.model.worker_config(HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads)));
  const auto n_tokens = static_cast<std::int64_t>(args.tokens.size());
  const std::int64_t chunk_len = args.model.flags().chunk_len;
  for (std::int64_t t = 1; t < n_tokens && !args.stop_requested(); t += stride) {
    steps.run(OpenSequence{.sequence = kText, .sampling = {}});
    for (std::int64_t begin = std::max<std::int64_t>(0, t - window); begin < t;
         begin += chunk_len) {
      const auto chunk =
          args.tokens.subspan(static_cast<std::size_t>(begin),
                              static_cast<std::size_t>(std::min(t - begin, chunk_len)));
      counted(steps, PrefillChunk{.sequence = kText, .tokens = copy_of(chunk)}, curve);
    }
    const auto token = args.tokens.subspan(static_cast<std::size_t>(t), 1);
    const StepDone done = counted(
        steps, PrefillChunk{.sequence = kText, .tokens = copy_of(token), .score_logprobs = 0},
        curve);
    add_scores(curve, done, t + 1);
    steps.run(DropSequences{.sequences = {kText}});
    args.on_progress(fmt::format("recomputed the window of token {} of {}", t, n_tokens));
  }
  return curve;
}

std::vector<std::int32_t> sample_text(const SampleTextArgs& args) {
  const std::vector<std::int32_t>& start = args.model.start();
  const auto n_start = static_cast<std::int64_t>(start.size());
  require(n_start > 0,
          "this tokenizer puts nothing in front of a text: the model cannot begin one");
  require(n_start < args.max_length, fmt::format("pieces of {} tokens", args.max_length));
  const ModelSpec& spec = args.model.spec();
  StepRunner steps(
      args.model.worker_config(HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads)));
  constexpr std::int64_t kTogether = 16;
  std::vector<std::int32_t> text;
  for (std::int64_t first = 0; static_cast<std::int64_t>(text.size()) < args.n_tokens;
       first += kTogether) {
    std::vector<std::vector<std::int32_t>> pieces(kTogether, start);
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
    for (std::int64_t i = 0; i < kTogether; ++i) {
      const SequenceId id{i};
      SamplingParams sampling;
      sampling.temperature = 1;
      sampling.seed = args.seed * 1'000'003 + static_cast<std::uint64_t>(first + i);
      steps.run(OpenSequence{.sequence = id, .sampling = sampling});
      take(steps.run(PrefillChunk{.sequence = id, .tokens = start, .after = AfterPrefill::kSample})
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
