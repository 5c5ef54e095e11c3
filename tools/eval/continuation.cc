#include "tools/eval/continuation.h"

#include <memory>

#include "base/clock.h"
#include "base/error.h"

namespace longhaul {
namespace {

constexpr SequenceId kBefore{0};
constexpr SequenceId kContinued{1};

// A draw from one token is that token, and its log-probability that of the whole distribution.
AllowedTokens only(std::int32_t token, std::int64_t vocab_size) {
  const auto allowed = std::make_shared<IdSet>(vocab_size);
  allowed->insert(token);
  return allowed;
}

}  // namespace

ContinuationScore score_continuation(StepRunner& steps, const ContinuationArgs& args) {
  const auto n_document = static_cast<std::size_t>(args.n_document);
  const auto n_prompt = static_cast<std::size_t>(args.n_prompt);
  require(args.n_document >= 1 && args.n_prompt >= 1 && n_document + n_prompt < args.tokens.size(),
          "a continuation needs a token of document, of prompt and of answer");
  const auto answer = args.tokens.subspan(n_document + n_prompt);
  steps.run(OpenSequence{.sequence = kBefore, .sampling = {}});
  steps.prefill({.sequence = kBefore,
                 .tokens = args.tokens.first(n_document),
                 .after = AfterPrefill::kDocumentEnd});
  SamplingParams sampling;
  sampling.n_logprobs = 0;
  steps.run(ForkSequence{.parent = kBefore, .child = kContinued, .sampling = sampling});
  const auto prompt = args.tokens.subspan(n_document, n_prompt);
  StepDone done = steps.run(PrefillChunk{.sequence = kContinued,
                                         .tokens = {prompt.begin(), prompt.end()},
                                         .after = AfterPrefill::kSample,
                                         .allowed = only(answer.front(), args.vocab_size)});
  ContinuationScore score;
  const Stopwatch watch;
  while (true) {
    score.mean_nll -= static_cast<double>(done.picked.at(0).logprob);
    ++score.n_tokens;
    const auto next = static_cast<std::size_t>(score.n_tokens);
    if (next == answer.size() || args.stop_requested()) break;
    DecodeBatch batch;
    batch.rows.push_back({.sequence = kContinued,
                          .token = answer[next - 1],
                          .allowed = only(answer[next], args.vocab_size)});
    done = steps.run(batch);
  }
  score.seconds = watch.seconds();
  score.mean_nll /= static_cast<double>(score.n_tokens);
  steps.run(DropSequences{.sequences = {kContinued, kBefore}});
  return score;
}

}  // namespace longhaul
