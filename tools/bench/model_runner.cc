#include "tools/bench/model_runner.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

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

ModelRunner::Run ModelRunner::run(const ModelTest& test) {
  fill_to(test.n_depth);
  const auto prompt = random_tokens(test.n_prompt);
  std::vector<SequenceId> sequences;
  for (std::int64_t i = 0; i < test.n_sequences; ++i) {
    sequences.push_back({next_++});
    steps_.run(ForkSequence{.parent = kDepth, .child = sequences.back(), .sampling = {}});
  }
  Run run{.seconds = 0, .n_steps = test.n_gen};
  const double begin = now_seconds(args_.clock);
  if (!prompt.empty()) {
    steps_.prefill(
        {.sequence = sequences.front(), .tokens = prompt, .after = AfterPrefill::kSample});
  }
  if (test.draft_max > 0) {
    run.n_steps = quote(sequences.front(), test);
  } else {
    decode(sequences, test.n_gen);
  }
  run.seconds = std::max(now_seconds(args_.clock) - begin, 1e-9);
  steps_.run(DropSequences{.sequences = std::move(sequences)});
  return run;
}

void ModelRunner::fill_to(std::int64_t depth) {
  if (depth == std::ssize(depth_)) return;
  if (!depth_.empty()) {  // a document that is whole does not grow
    steps_.run(DropSequences{.sequences = {kDepth}});
    steps_.run(OpenSequence{.sequence = kDepth, .sampling = {}});
    depth_.clear();
    index_.reset();
  }
  if (depth == 0) return;
  std::vector<std::int32_t> tokens = random_tokens(depth);
  steps_.prefill({.sequence = kDepth, .tokens = tokens, .after = AfterPrefill::kDocumentEnd});
  steps_.run(ReportRank{});  // which waits until a GPU has done it
  depth_ = std::move(tokens);
}

void ModelRunner::decode(std::span<const SequenceId> sequences, std::int64_t n_tokens) {
  for (std::int64_t i = 0; i < n_tokens; ++i) {
    const auto tokens = random_tokens(std::ssize(sequences));
    DecodeBatch batch;
    for (std::size_t s = 0; s < sequences.size(); ++s)
      batch.rows.push_back({.sequence = sequences[s], .token = tokens[s]});
    steps_.run(std::move(batch));
  }
}

// As a model that quotes would: a guess comes true when the passage goes on with it. Returns the
// number of steps.
std::int64_t ModelRunner::quote(SequenceId sequence, const ModelTest& test) {
  if (index_ == nullptr) {
    LookupDocument document{nullptr, TokenIndex(LookupConfig{}.least)};
    document.index.append(depth_);
    index_ = std::make_shared<const LookupDocument>(std::move(document));
  }
  const auto n = static_cast<std::size_t>(test.n_gen);
  const std::size_t n_places = depth_.size() - n + 1;
  const auto passage = std::span(depth_).subspan(draws_.below(n_places), n);
  PromptLookup lookup({.most = test.draft_max}, index_, passage.first(1));
  std::int64_t n_steps = 0;
  std::int64_t n_wrong = 0;
  for (std::size_t at = 0; at < n; ++n_steps) {
    const auto rest = passage.subspan(at + 1);
    DecodeBatch::Row row{.sequence = sequence,
                         .token = passage[at],
                         .guesses = lookup.guess(std::ssize(rest)),
                         .n_wrong = n_wrong};
    const auto n_guessed = std::ssize(row.guesses);
    const auto n_true = std::mismatch(row.guesses.begin(), row.guesses.end(), rest.begin()).first -
                        row.guesses.begin();
    steps_.run(DecodeBatch{.rows = {std::move(row)}});
    n_wrong = n_guessed - n_true;
    const auto n_picked = std::min<std::size_t>(static_cast<std::size_t>(n_true) + 1, rest.size());
    lookup.add(rest.first(n_picked));
    lookup.learn(n_guessed, n_true);
    at += static_cast<std::size_t>(n_true) + 1;
  }
  return n_steps;
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
