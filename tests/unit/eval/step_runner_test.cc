// Prompts as chunks through a link: what is sent, how far ahead, and what is left of it after a
// stop or a failure.
#include "tools/eval/step_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <numeric>

#include "base/error.h"

namespace longhaul {
namespace {

using testing::ElementsAre;

// Answers each command when its result is asked for; the numbers of chunks count from 0.
class ScriptedLink final : public Link {
 public:
  void send(StepCommand command) override {
    waiting_.push_back(std::move(command));
    most_waiting_ = std::max(most_waiting_, waiting_.size());
  }
  StepResult receive(Deadline /*deadline*/) override {
    const StepCommand command = std::move(waiting_.front());
    waiting_.pop_front();
    StepDone done;
    if (const auto* chunk = std::get_if<PrefillChunk>(&command)) {
      const std::size_t number = chunks_.size();
      chunks_.push_back(*chunk);
      if (number >= n_good_) {
        return StepFailed{ErrorCode::kOutOfMemory, "chunk " + std::to_string(number)};
      }
      done.kv_bytes_in_use = chunk->tokens.size();
    }
    return done;
  }

  std::deque<StepCommand> waiting_;
  std::size_t most_waiting_ = 0;
  std::size_t n_good_ = 1000;
  std::vector<PrefillChunk> chunks_;
};

constexpr SequenceId kText{3};

std::vector<std::int32_t> ten_tokens() {
  std::vector<std::int32_t> tokens(10);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(StepRunner, SendsAPromptInChunksAndAsksTheLastOneForAToken) {
  ScriptedLink link;
  StepRunner steps(link, {.chunk_len = 4, .n_ahead = 2});
  const auto tokens = ten_tokens();
  std::vector<std::int64_t> read;
  const std::int64_t n_read = steps.prefill(
      {.sequence = kText, .tokens = tokens, .after = AfterPrefill::kSample, .score_logprobs = 0},
      [&](const StepDone&, std::int64_t n) {
        read.push_back(n);
        return true;
      });
  EXPECT_EQ(n_read, 10);
  EXPECT_THAT(read, ElementsAre(4, 8, 10));
  ASSERT_EQ(link.chunks_.size(), 3U);
  EXPECT_THAT(link.chunks_[2].tokens, ElementsAre(8, 9));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(link.chunks_[i].sequence, kText);
    EXPECT_EQ(link.chunks_[i].score_logprobs, 0);
    EXPECT_EQ(link.chunks_[i].after, i == 2 ? AfterPrefill::kSample : AfterPrefill::kNothing);
  }
  EXPECT_EQ(link.most_waiting_, 2U);
  EXPECT_EQ(steps.prefill({.sequence = kText, .tokens = tokens}).kv_bytes_in_use, 2U);
}

TEST(StepRunner, FinishesWhatIsUnderWayWhenItIsToStop) {
  ScriptedLink link;
  StepRunner steps(link, {.chunk_len = 1, .n_ahead = 3});
  const std::int64_t n_read = steps.prefill({.sequence = kText, .tokens = ten_tokens()},
                                            [](const StepDone&, std::int64_t n) { return n < 2; });
  EXPECT_EQ(n_read, 4);  // stopped after 2, when chunks 3 and 4 were under way
  EXPECT_TRUE(link.waiting_.empty());
}

TEST(StepRunner, LeavesNoAnswersBehindAFailure) {
  ScriptedLink link;
  link.n_good_ = 2;
  StepRunner steps(link, {.chunk_len = 1, .n_ahead = 3});
  try {
    steps.prefill({.sequence = kText, .tokens = ten_tokens()});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_STREQ(error.what(), "chunk 2");  // the first that failed
  }
  EXPECT_TRUE(link.waiting_.empty());
  EXPECT_NO_THROW(steps.run(DropSequences{.sequences = {kText}}));
}

TEST(StepRunner, HoldsAllRanksTogetherToTheLimitOfTheCaches) {
  ScriptedLink link;
  StepRunner steps(link, {.chunk_len = 4, .n_ahead = 3, .kv_limit_bytes = 3});
  try {
    steps.prefill({.sequence = kText, .tokens = ten_tokens()});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_THAT(error.what(), testing::HasSubstr("take 4 bytes, more than the limit of 3"));
  }
  EXPECT_TRUE(link.waiting_.empty());
}

TEST(StepRunner, RefusesAnEmptyPrompt) {
  ScriptedLink link;
  StepRunner steps(link, {});
  EXPECT_THROW(steps.prefill({.sequence = kText, .tokens = {}}), Error);
}

}  // namespace
}  // namespace longhaul
