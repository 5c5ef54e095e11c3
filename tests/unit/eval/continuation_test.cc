// What a continuation asks of the ranks: a document, its fork with a prompt, and an answer whose
// every token is given.
#include "tools/eval/continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <numeric>

namespace longhaul {
namespace {

using testing::ElementsAre;

// Picks what is allowed, with a log-probability that tells which it was.
class AllowedLink final : public Link {
 public:
  void send(StepCommand command) override { waiting_.push_back(std::move(command)); }
  StepResult receive(Deadline /*deadline*/) override {
    const StepCommand command = std::move(waiting_.front());
    waiting_.pop_front();
    StepDone done;
    if (const auto* chunk = std::get_if<PrefillChunk>(&command)) {
      read_.push_back({chunk->sequence, chunk->after, chunk->tokens.size()});
      if (chunk->after == AfterPrefill::kSample) pick(chunk->allowed, done);
    } else if (const auto* batch = std::get_if<DecodeBatch>(&command)) {
      fed_.push_back(batch->rows.at(0).token);
      pick(batch->rows[0].allowed, done);
    } else if (const auto* fork = std::get_if<ForkSequence>(&command)) {
      n_logprobs_ = fork->sampling.n_logprobs;
    } else if (const auto* drop = std::get_if<DropSequences>(&command)) {
      n_dropped_ += drop->sequences.size();
    }
    return done;
  }

  struct Read {
    SequenceId sequence;
    AfterPrefill after;
    std::size_t n_tokens;
    bool operator==(const Read&) const = default;
  };
  std::vector<Read> read_;
  std::vector<std::int32_t> fed_;
  std::int64_t n_logprobs_ = -1;
  std::size_t n_dropped_ = 0;

 private:
  void pick(const AllowedTokens& allowed, StepDone& done) {
    ASSERT_EQ(allowed->count(), 1);
    allowed->for_each([&](std::int64_t token) {
      PickedToken picked;
      picked.sequence = SequenceId{1};
      picked.token = static_cast<std::int32_t>(token);
      picked.logprob = -static_cast<float>(token);
      done.picked.push_back(picked);
    });
  }
  std::deque<StepCommand> waiting_;
};

TEST(Continuation, IsAnAnswerWhoseTokensAreGiven) {
  AllowedLink link;
  StepRunner steps(link, {.chunk_len = 100});
  std::vector<std::int32_t> tokens(10);
  std::iota(tokens.begin(), tokens.end(), 0);
  const ContinuationScore score = score_continuation(
      steps,
      {.tokens = tokens, .n_document = 4, .n_prompt = 3, .vocab_size = 16, .stop_requested = [] {
         return false;
       }});
  EXPECT_THAT(link.read_,
              ElementsAre(AllowedLink::Read{SequenceId{0}, AfterPrefill::kDocumentEnd, 4},
                          AllowedLink::Read{SequenceId{1}, AfterPrefill::kSample, 3}));
  EXPECT_THAT(link.fed_, ElementsAre(7, 8));
  EXPECT_EQ(link.n_logprobs_, 0);
  EXPECT_EQ(link.n_dropped_, 2U);
  EXPECT_EQ(score.n_tokens, 3);
  EXPECT_DOUBLE_EQ(score.mean_nll, (7.0 + 8.0 + 9.0) / 3);
}

}  // namespace
}  // namespace longhaul
