#include "coordinator/request_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"

namespace longhaul {
namespace {

using testing::ElementsAre;

const Tokenizer& tokenizer() {
  static const Tokenizer instance =
      Tokenizer::from_file(test::example_path("model/tokenizer.json"));
  return instance;
}

// Of two tokens with these log-probabilities.
Answer answer_of(float first, float second) {
  Answer answer(tokenizer(), {.max_tokens = 2});
  answer.add({SequenceId{0}, 300, first, {}});
  answer.add({SequenceId{0}, 301, second, {}});
  return answer;
}

PreparedRequest request_of(std::int64_t n_prompts, std::int64_t n_answers, std::int64_t n_kept) {
  PreparedRequest request;
  request.n_answers = n_answers;
  request.n_kept = n_kept;
  request.max_tokens = 2;
  request.sampling.seed = 10;
  for (std::int64_t i = 0; i < n_prompts; ++i)
    request.prompts.push_back({.ids = {1, 2, static_cast<std::int32_t>(i)}});
  return request;
}

TEST(RequestJobs, KeepTheLikeliestPerTokenOfEachPrompt) {
  std::vector<Answer> answers;
  for (const auto& [first, second] : std::initializer_list<std::pair<float, float>>{
           {-3, -1}, {-1, -1}, {-1, -2}, {-5, -5}, {-1, -9}, {0, -1}})
    answers.push_back(answer_of(first, second));
  EXPECT_THAT(kept_answers(request_of(2, 3, 2), answers),
              ElementsAre(&answers[1], &answers[2], &answers[5], &answers[3]));
  EXPECT_THAT(kept_answers(request_of(1, 6, 1), answers), ElementsAre(&answers[5]));
  EXPECT_THAT(kept_answers(request_of(2, 3, 3), answers),
              ElementsAre(&answers[0], &answers[1], &answers[2], &answers[3], &answers[4],
                          &answers[5]));  // as they were made
}

TEST(RequestJobs, ReadAPromptOfSeveralAnswersOnce) {
  std::vector<JobGroup> groups(1);
  add_jobs(request_of(2, 3, 2), RequestId{7}, std::vector<AllowedTokens>(6), groups);
  const JobGroup& group = groups[0];
  EXPECT_TRUE(group.jobs.empty());
  ASSERT_EQ(group.parts.size(), 2U);
  EXPECT_THAT(group.parts[1].document, ElementsAre(1, 2));
  ASSERT_EQ(group.parts[1].jobs.size(), 3U);
  const Job& last = group.parts[1].jobs[2];
  EXPECT_EQ(last.request, RequestId{12});
  EXPECT_THAT(last.prompt, ElementsAre(1));
  EXPECT_EQ(last.sampling.seed, 15U);
}

TEST(RequestJobs, BelongToTheirDocumentAndItsPart) {
  std::vector<PreparedDocument> documents(2);
  documents[0].ids = {11};
  documents[1] = {.ids = {12, 13}, .parts = {{14}}};
  std::vector<JobGroup> groups = groups_of(std::move(documents));
  PreparedRequest request = request_of(3, 2, 2);
  request.prompts[1].document = request.prompts[2].document = 1;
  request.prompts[2].part = 0;
  add_jobs(request, RequestId{0}, std::vector<AllowedTokens>(6), groups);
  EXPECT_THAT(groups[0].document, ElementsAre(11));
  EXPECT_EQ(groups[0].parts.at(0).jobs.size(), 2U);
  EXPECT_THAT(groups[1].document, ElementsAre(12, 13));
  ASSERT_EQ(groups[1].parts.size(), 2U);
  EXPECT_THAT(groups[1].parts[0].document, ElementsAre(14));
  EXPECT_TRUE(groups[1].parts[0].jobs.empty());
  EXPECT_EQ(groups[1].parts[0].parts.at(0).jobs.size(), 2U);  // the answers to the third prompt
  EXPECT_EQ(groups[1].parts[1].jobs.size(), 2U);
  EXPECT_TRUE(groups[1].has_jobs());
}

TEST(RequestJobs, AreByThemselvesWhereThereIsNothingToShare) {
  std::vector<JobGroup> groups(1);
  add_jobs(request_of(2, 1, 1), RequestId{0}, std::vector<AllowedTokens>(2), groups);
  PreparedRequest scored = request_of(1, 2, 2);
  scored.score_logprobs = 0;  // every answer's job gives the prompt's scores
  add_jobs(scored, RequestId{2}, std::vector<AllowedTokens>(2), groups);
  PreparedRequest of_one_token = request_of(1, 2, 2);
  of_one_token.prompts[0].ids = {5};
  add_jobs(of_one_token, RequestId{4}, std::vector<AllowedTokens>(2), groups);
  const JobGroup& group = groups[0];
  EXPECT_TRUE(group.parts.empty());
  ASSERT_EQ(group.jobs.size(), 6U);
  EXPECT_THAT(group.jobs[3].prompt, ElementsAre(1, 2, 0));
  EXPECT_EQ(group.jobs[3].sampling.seed, 11U);
}

}  // namespace
}  // namespace longhaul
