#include "tools/bench/model_runner.h"

#include <algorithm>
#include <span>

namespace longhaul::bench {
namespace {

constexpr SequenceId kDepth{0};

}  // namespace

ModelRunner::ModelRunner(const WorkerConfig& config, std::int64_t chunk_len, BenchClock clock)
    : vocab_size_(config.weights->spec().vocab_size),
      chunk_len_(chunk_len),
      clock_(clock),
      steps_(config) {
  steps_.run(OpenSequence{.sequence = kDepth, .sampling = {}});
}

double ModelRunner::run(const ModelTest& test) {
  fill_to(test.n_depth);
  const auto prompt = random_tokens(test.n_prompt);
  const auto generated = random_tokens(test.n_gen);
  const SequenceId sequence{next_++};
  steps_.run(ForkSequence{.parent = kDepth, .child = sequence, .sampling = {}});
  const double begin = now_seconds(clock_);
  prefill(sequence, prompt);
  decode(sequence, generated);
  const double seconds = now_seconds(clock_) - begin;
  steps_.run(DropSequences{.sequences = {sequence}});
  return std::max(seconds, 1e-9);
}

void ModelRunner::fill_to(std::int64_t depth) {
  if (depth < depth_) {
    steps_.run(DropSequences{.sequences = {kDepth}});
    steps_.run(OpenSequence{.sequence = kDepth, .sampling = {}});
    depth_ = 0;
  }
  if (depth == depth_) return;
  prefill(kDepth, random_tokens(depth - depth_));
  steps_.run(ReportRank{});  // which waits until a GPU has done it
  depth_ = depth;
}

void ModelRunner::prefill(SequenceId sequence, std::span<const std::int32_t> tokens) {
  while (!tokens.empty()) {
    const auto chunk = tokens.first(std::min(tokens.size(), static_cast<std::size_t>(chunk_len_)));
    tokens = tokens.subspan(chunk.size());
    steps_.run(
        PrefillChunk{.sequence = sequence,
                     .tokens = {chunk.begin(), chunk.end()},
                     .after = tokens.empty() ? AfterPrefill::kSample : AfterPrefill::kNothing});
  }
}

void ModelRunner::decode(SequenceId sequence, std::span<const std::int32_t> tokens) {
  for (const std::int32_t token : tokens) {
    steps_.run(DecodeBatch{.rows = {{.sequence = sequence, .token = token}}});
  }
}

std::vector<std::int32_t> ModelRunner::random_tokens(std::int64_t n) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < n; ++i) {
    tokens.push_back(
        static_cast<std::int32_t>(draws_.below(static_cast<std::size_t>(vocab_size_))));
  }
  return tokens;
}

}  // namespace longhaul::bench
