#include "tools/bench/model_runner.h"

#include <algorithm>
#include <span>

namespace longhaul::bench {
namespace {

constexpr SequenceId kDepth{0};

}  // namespace

ModelRunner::ModelRunner(const ModelRunnerArgs& args) : args_(args), steps_(args.link, args.steps) {
  steps_.run(OpenSequence{.sequence = kDepth, .sampling = {}});
}

RingRates ModelRunner::rates() {
  const WorkClock clock =
      args_.clock == WorkClock::kWall ? WorkClock::kWall : WorkClock::kThreadCpu;
  const std::vector<RankRates> ranks =
      steps_.run(MeasureRates{.clock = clock, .cpu_read_bytes = args_.cpu_read_bytes}).rates;
  RingRates ring{.n_ranks = static_cast<std::int64_t>(ranks.size()),
                 .n_threads = ranks.at(0).n_threads,
                 .together = {}};
  for (const RankRates& rank : ranks) ring.together = sum_of(ring.together, rank.rates);
  return ring;
}

double ModelRunner::run(const ModelTest& test) {
  fill_to(test.n_depth);
  const auto prompt = random_tokens(test.n_prompt);
  const auto generated = random_tokens(test.n_gen);
  const SequenceId sequence{next_++};
  steps_.run(ForkSequence{.parent = kDepth, .child = sequence, .sampling = {}});
  const double begin = now_seconds(args_.clock);
  if (!prompt.empty()) {
    steps_.prefill({.sequence = sequence, .tokens = prompt, .after = AfterPrefill::kSample});
  }
  decode(sequence, generated);
  const double seconds = now_seconds(args_.clock) - begin;
  steps_.run(DropSequences{.sequences = {sequence}});
  return std::max(seconds, 1e-9);
}

void ModelRunner::fill_to(std::int64_t depth) {
  if (depth == depth_) return;
  if (depth_ > 0) {  // a document that is whole does not grow
    steps_.run(DropSequences{.sequences = {kDepth}});
    steps_.run(OpenSequence{.sequence = kDepth, .sampling = {}});
    depth_ = 0;
  }
  if (depth == 0) return;
  const std::vector<std::int32_t> tokens = random_tokens(depth);
  steps_.prefill({.sequence = kDepth, .tokens = tokens, .after = AfterPrefill::kDocumentEnd});
  steps_.run(ReportRank{});  // which waits until a GPU has done it
  depth_ = depth;
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
        static_cast<std::int32_t>(draws_.below(static_cast<std::size_t>(args_.vocab_size))));
  }
  return tokens;
}

}  // namespace longhaul::bench
