#include "coordinator/prompt_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "coordinator/scheduler.h"
#include "tests/support/random.h"
#include "tests/unit/coordinator/lookup_documents.h"

namespace longhaul {
namespace {

using test::document_of;
using test::Ids;

std::int64_t agreement(const Ids& text, const Ids& tokens, std::int64_t next) {
  std::int64_t n = 0;
  while (n < next && n < static_cast<std::int64_t>(text.size()) &&
         text[text.size() - 1 - static_cast<std::size_t>(n)] ==
             tokens[static_cast<std::size_t>(next - 1 - n)]) {
    ++n;
  }
  return n;
}

TEST(TokenIndex, FindsTheNewestOfTheLongestAgreements) {
  for (int round = 0; round < 300 * test::intensity(); ++round) {
    test::Random random(test::base_seed() * 1000 + static_cast<std::uint64_t>(round));
    const std::int64_t least = random.integer(1, 4);
    const std::int64_t n_words = random.integer(3, 9);
    TokenIndex index(least);
    Ids tokens;
    while (tokens.size() < 60) {  // appended in pieces
      Ids piece;
      for (std::int64_t i = random.integer(0, 30); i > 0; --i)
        piece.push_back(static_cast<std::int32_t>(random.integer(0, n_words - 1)));
      index.append(piece);
      tokens.insert(tokens.end(), piece.begin(), piece.end());
    }
    Ids text(tokens.begin() + 10, tokens.begin() + random.integer(11, 40));
    if (random.chance(0.3)) text = tokens;
    TokenIndex::Match want;
    for (auto next = static_cast<std::int64_t>(tokens.size()) - 1; next >= least; --next) {
      const std::int64_t n = std::min<std::int64_t>(32, agreement(text, tokens, next));
      if (n >= least && n > want.length) want = {n, next};
    }
    const auto got = index.find(text);
    ASSERT_EQ(got.has_value(), want.length > 0);
    if (!got) continue;
    EXPECT_EQ(got->length, want.length);
    EXPECT_EQ(got->next, want.next);
  }
}

TEST(PromptLookup, LooksInAllDocumentsAndGoesOverTheirEnds) {
  const LookupDocumentRef first = document_of({1, 2, 3, 4, 5, 6});
  const LookupDocumentRef second = document_of({30, 31, 32, 33, 2, 3}, first);
  const LookupConfig config{.most = 3, .least = 2};
  // The document ends with 2 3, which stood before 4 5 6; the prompt of one token goes on with it.
  EXPECT_EQ(PromptLookup(config, second, Ids{4}).guess(10), (Ids{5, 6}));
  EXPECT_EQ(PromptLookup(config, second, Ids{8, 31, 32}).guess(10), (Ids{33, 2, 3}));
  EXPECT_EQ(PromptLookup(config, second, Ids{8, 31, 32}).guess(1), (Ids{33}));
  EXPECT_TRUE(PromptLookup(config, second, Ids{8, 31, 32}).guess(0).empty());
  EXPECT_TRUE(PromptLookup(config, second, Ids{8, 9}).guess(10).empty());
  PromptLookup answer(config, nullptr, Ids{7, 8, 9});
  answer.add(Ids{40, 7, 8});
  EXPECT_EQ(answer.guess(10), (Ids{9, 40, 7}));
}

TEST(PromptLookup, GuessesMoreWhereTheyComeTrueAndPausesWhereTheyDoNot) {
  Ids document;
  for (std::int32_t i = 0; i < 100; ++i) document.push_back(i);
  PromptLookup answer({.most = 20, .least = 2}, document_of(document), Ids{10, 11});
  const auto n_guessed = [&] { return static_cast<std::int64_t>(answer.guess(64).size()); };
  EXPECT_EQ(n_guessed(), 4);
  answer.learn(4, 4);
  EXPECT_EQ(n_guessed(), 9);
  answer.learn(9, 9);
  EXPECT_EQ(n_guessed(), 19);
  answer.learn(19, 2);
  EXPECT_EQ(n_guessed(), 5);
  for (std::int64_t miss = 1; miss <= 20; ++miss) {
    answer.learn(1, 0);
    for (std::int64_t pause = 0; pause < std::min<std::int64_t>(miss, 16); ++pause)
      EXPECT_EQ(n_guessed(), 0);
    EXPECT_EQ(n_guessed(), 1);
  }
  answer.learn(1, 1);
  EXPECT_EQ(n_guessed(), 3);
}

TEST(Scheduler, AQuoteTakesFewSteps) {
  // What follows any three of these words is always the same.
  Ids document;
  for (std::int32_t i = 0; i < 600; ++i) document.push_back(i % 300);
  SchedulerConfig config;
  config.lookup = {.most = 32, .least = 3};
  Scheduler scheduler(config);
  scheduler.add(
      {document,
       {{.request = RequestId{1}, .prompt = {7, 8, 9}, .sampling = {}, .max_tokens = 200}}});
  std::int64_t n_steps = 0;
  std::int32_t last = 9;
  std::int64_t n_picked = 0;
  while (n_picked < 200) {
    const auto command = scheduler.next();
    ASSERT_TRUE(command);
    StepDone done;
    const auto pick = [&](SequenceId sequence) {
      done.picked.push_back({sequence, last = (last + 1) % 300, 0.0F, {}});
      ++n_picked;
    };
    const auto* chunk = std::get_if<PrefillChunk>(&*command);
    if (chunk != nullptr && chunk->after == AfterPrefill::kSample) pick(chunk->sequence);
    if (const auto* batch = std::get_if<DecodeBatch>(&*command)) {
      ++n_steps;
      const DecodeBatch::Row& row = batch->rows.at(0);
      ASSERT_EQ(row.token, last);
      EXPECT_EQ(row.n_wrong, 0);
      for (std::size_t i = 0; i < row.guesses.size(); ++i)
        ASSERT_EQ(row.guesses[i], (row.token + 1 + static_cast<std::int32_t>(i)) % 300);
      for (std::size_t i = 0; i <= row.guesses.size(); ++i) pick(row.sequence);
    }
    scheduler.consume(done);
  }
  EXPECT_EQ(n_picked, 200);
  EXPECT_EQ(n_steps, 8);  // of 5, 10, 20, four times 33, and 32 tokens
  scheduler.finish(RequestId{1});
}

// The rows of the answer's decode steps, answered by `answer`, one token after the other.
std::vector<Ids> guesses_of_steps(const Ids& expected, const Ids& answer) {
  SchedulerConfig config;
  config.budget.n_guesses = 3;
  Scheduler scheduler(config);
  const auto n = static_cast<std::int64_t>(answer.size());
  scheduler.add({{},
                 {{.request = RequestId{1},
                   .prompt = {1},
                   .sampling = {},
                   .max_tokens = n,
                   .expected = expected}}});
  std::vector<Ids> guesses;
  std::size_t n_picked = 0;
  while (n_picked < answer.size()) {
    const auto command = scheduler.next();
    StepDone done;
    const auto pick = [&](SequenceId sequence) {
      done.picked.push_back({sequence, answer.at(n_picked++), 0.0F, {}});
    };
    if (const auto* chunk = std::get_if<PrefillChunk>(&*command)) pick(chunk->sequence);
    if (const auto* batch = std::get_if<DecodeBatch>(&*command)) {
      const DecodeBatch::Row& row = batch->rows.at(0);
      guesses.push_back(row.guesses);
      pick(row.sequence);
      for (const std::int32_t guess : row.guesses) {
        if (done.picked.back().token != guess) break;
        pick(row.sequence);
      }
    }
    scheduler.consume(done);
  }
  return guesses;
}

// What an earlier run picked of an answer, as far as this one picks the same; without lookup, too.
TEST(Scheduler, GuessesWhatIsExpectedOfAnAnswer) {
  EXPECT_EQ(guesses_of_steps({5, 6, 7, 8, 9}, {5, 6, 7, 8, 9, 10}),
            (std::vector<Ids>{{6, 7, 8}, {}}))
      << "three guesses and the token behind them";
  EXPECT_EQ(guesses_of_steps({5, 6, 7, 8, 9}, {5, 6, 2, 3}), (std::vector<Ids>{{6, 7}, {}}));
  EXPECT_EQ(guesses_of_steps({5, 6}, {4, 6, 7}), (std::vector<Ids>{{}, {}}));
}

}  // namespace
}  // namespace longhaul
