#include "coordinator/unfinished_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

const RequestIdentity kFirst{"first", "aa", ""};
const RequestIdentity kSecond{"second", "bb", "cc"};

std::vector<std::int32_t> ids_of(const std::vector<PickedToken>& tokens) {
  std::vector<std::int32_t> ids;
  for (const PickedToken& token : tokens) ids.push_back(token.token);
  return ids;
}

std::vector<PickedToken> tokens_with(const std::vector<std::int32_t>& ids) {
  std::vector<PickedToken> tokens;
  for (const std::int32_t id : ids) tokens.emplace_back().token = id;
  return tokens;
}

class UnfinishedAnswersTest : public testing::Test {
 protected:
  std::filesystem::path path() const { return folder_.path() / "out.unfinished.jsonl"; }
  test::TemporaryFolder folder_;
};

TEST_F(UnfinishedAnswersTest, AreFoundByTheNextRun) {
  std::vector<PickedToken> scored = tokens_with({5, 0});
  scored[0].logprob = -0.1F;
  scored[0].top = {{.token = 5, .logprob = -0.1F}, {.token = 9, .logprob = -3.3333333F}};
  scored[1].logprob = -1e-30F;
  {
    UnfinishedAnswers answers(path());
    answers.set(kFirst, tokens_with({1, 22, 333}));
    answers.set(kSecond, scored);
    answers.write();
  }
  const UnfinishedAnswers answers(path());
  EXPECT_EQ(ids_of(answers.find(kFirst)), (std::vector<std::int32_t>{1, 22, 333}));
  const std::vector<PickedToken> found = answers.find(kSecond);
  ASSERT_EQ(found.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found[i].token, scored[i].token);
    EXPECT_EQ(found[i].logprob, scored[i].logprob);
    ASSERT_EQ(found[i].top.size(), scored[i].top.size());
  }
  EXPECT_EQ(found[0].top[1].logprob, scored[0].top[1].logprob);
}

TEST_F(UnfinishedAnswersTest, AreThoseOfTheSameRequestAlone) {
  UnfinishedAnswers answers(path());
  answers.set(kSecond, tokens_with({1}));
  RequestIdentity other = kSecond;
  other.body_sha256 = "changed";
  EXPECT_TRUE(answers.find(other).empty());
  EXPECT_TRUE(answers.find(kFirst).empty());
}

TEST_F(UnfinishedAnswersTest, TheFileGoesWithTheLastOfThem) {
  UnfinishedAnswers answers(path());
  answers.write();
  EXPECT_FALSE(std::filesystem::exists(path()));
  answers.set(kFirst, tokens_with({1}));
  answers.write();
  EXPECT_TRUE(std::filesystem::exists(path()));
  answers.forget(kFirst);
  answers.write();
  EXPECT_FALSE(std::filesystem::exists(path()));
}

// A run that is killed behind a request's result leaves what there was of its answer.
TEST_F(UnfinishedAnswersTest, OfRequestsThatAreDoneNothingIsKept) {
  UnfinishedAnswers answers(path());
  answers.set(kFirst, tokens_with({1}));
  answers.set(kSecond, tokens_with({2}));
  answers.write();
  UnfinishedAnswers again(path());
  again.keep_only({kSecond});
  again.write();
  EXPECT_EQ(UnfinishedAnswers(path()).size(), 1U);
  EXPECT_EQ(ids_of(UnfinishedAnswers(path()).find(kSecond)), (std::vector<std::int32_t>{2}));
  again.keep_only({});
  again.write();
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(UnfinishedAnswersTest, ALineThatWasChangedIsRefusedByNumber) {
  UnfinishedAnswers answers(path());
  answers.set(kFirst, tokens_with({12, 34}));
  answers.write();
  std::string text = read_file(path(), 1 << 20);
  text.replace(text.find("12 34"), 5, "12 35");
  replace_file(path(), text);
  try {
    const UnfinishedAnswers again(path());
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(error.what(), testing::HasSubstr("out.unfinished.jsonl:1: the line is not as it"));
  }
}

}  // namespace
}  // namespace longhaul
