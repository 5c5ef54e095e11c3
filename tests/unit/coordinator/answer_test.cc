#include "coordinator/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"

namespace longhaul {
namespace {

using Ids = std::vector<std::int32_t>;

const Tokenizer& tokenizer() {
  static const Tokenizer instance =
      Tokenizer::from_file(test::example_path("model/tokenizer.json"));
  return instance;
}

Ids encode(std::string_view text) {
  return tokenizer().encode(text, {.add_special_tokens = false});
}

PickedToken picked(std::int32_t id, float logprob = -0.5F) {
  return {SequenceId{0}, id, logprob, {{id, logprob}, {id + 1, -3.0F}}};
}

// Feeds the tokens of `text` until the answer is complete.
Answer answer_to(AnswerSpec spec, std::string_view text, const Ids& more = {}) {
  Answer answer(tokenizer(), std::move(spec));
  Ids ids = encode(text);
  ids.insert(ids.end(), more.begin(), more.end());
  for (const std::int32_t id : ids) {
    if (answer.add(picked(id))) break;
  }
  return answer;
}

TEST(Answer, EndsAtMaxTokens) {
  const std::string text = "The harbour of the village";
  const auto n = static_cast<std::int64_t>(encode(text).size());
  const Answer answer = answer_to({.max_tokens = n}, text, {300, 300});
  EXPECT_EQ(answer.text(), text);
  EXPECT_EQ(answer.finish_reason(), "length");
  EXPECT_EQ(answer.n_generated(), n);
}

TEST(Answer, EndsAtAnEndTokenThatIsNoText) {
  const Answer answer = answer_to({.max_tokens = 100, .eos = {0, 1}}, "code 7.", {1, 300});
  EXPECT_EQ(answer.text(), "code 7.");
  EXPECT_EQ(answer.finish_reason(), "stop");
  EXPECT_EQ(answer.n_generated(), static_cast<std::int64_t>(encode("code 7.").size()) + 1);
}

TEST(Answer, CutsStopStringsAcrossTokens) {
  const Answer answer = answer_to({.n_logprobs = 0, .max_tokens = 100, .stop = {"ge was op"}},
                                  "the bridge was opened");
  EXPECT_EQ(answer.text(), "the brid");
  EXPECT_EQ(answer.finish_reason(), "stop");
  // The listed tokens begin inside the text.
  const Json choice = answer.choice();
  for (const Json& offset :
       std::get<JsonArray>(choice.find("logprobs")->find("text_offset")->value()))
    EXPECT_LT(std::get<std::int64_t>(offset.value()), 8);
}

TEST(Answer, GivesBackWhatItHeldForAStopStringThatDidNotCome) {
  const Answer answer =
      answer_to({.max_tokens = 100, .stop = {"xyz END"}, .eos = {1}}, "abc xyz", {1});
  EXPECT_EQ(answer.text(), "abc xyz");
}

TEST(Answer, GrowsByWholeCharacters) {
  const std::string text = "größe 漢字 😀!";
  Answer answer(tokenizer(), {.max_tokens = 1000});
  std::string grown;
  for (const std::int32_t id : encode(text)) {
    answer.add(picked(id));
    const std::string piece = answer.take_new_text();
    EXPECT_EQ(tokenizer().decode(encode(piece)), piece);
    grown += piece;
  }
  EXPECT_EQ(grown, text);
}

TEST(Answer, EchoScoresThePrompt) {
  const std::string text = " the secret code";
  Ids prompt = encode(text);
  prompt.insert(prompt.begin(), 0);  // <s>
  Answer answer(tokenizer(), {.prompt = prompt, .echo_text = text, .echo = true, .n_logprobs = 2});
  std::vector<PickedToken> scores;
  for (std::size_t i = 1; i < prompt.size(); ++i)
    scores.push_back(picked(prompt[i], -0.1F * static_cast<float>(i)));
  answer.add_prompt_scores(scores);
  answer.complete_prompt_only();
  const Json choice = answer.choice();
  EXPECT_EQ(std::get<std::string>(choice.find("text")->value()), text);
  const Json& logprobs = *choice.find("logprobs");
  const auto& numbers = std::get<JsonArray>(logprobs.find("token_logprobs")->value());
  ASSERT_EQ(numbers.size(), prompt.size());
  EXPECT_TRUE(numbers[0].is_null());
  EXPECT_EQ(to_text(numbers[1]), "-0.1");
  EXPECT_EQ(to_text(std::get<JsonArray>(logprobs.find("tokens")->value())[0]), "\"<s>\"");
  const auto& offsets = std::get<JsonArray>(logprobs.find("text_offset")->value());
  EXPECT_EQ(to_text(offsets[0]), "0");
  EXPECT_EQ(to_text(offsets[1]), "0");
  EXPECT_EQ(std::get<std::int64_t>(offsets[2].value()),
            static_cast<std::int64_t>(tokenizer().token_bytes(prompt[1]).size()));
}

TEST(Answer, EchoLeavesOutTokensOfTheDocument) {
  const Ids prompt = {300, 301, 302};  // the first one belongs to the document
  Answer answer(tokenizer(),
                {.prompt = prompt, .n_hidden = 1, .echo_text = "x", .echo = true, .n_logprobs = 0});
  answer.add_prompt_scores({picked(300), picked(301), picked(302)});
  answer.complete_prompt_only();
  const Json choice = answer.choice();
  EXPECT_EQ(std::get<JsonArray>(choice.find("logprobs")->find("tokens")->value()).size(), 2U);
}

TEST(Logprobs, WritePartsOfCharactersAsBytes) {
  const Ids ids = encode("漢");
  ASSERT_GT(ids.size(), 1U);  // bytes
  EXPECT_EQ(logprob_text(tokenizer(), ids[0]), "bytes:\\xe6");
  EXPECT_EQ(logprob_text(tokenizer(), 1), "</s>");
}

// A run ended when the list of likely tokens had an id beyond the tokenizer's.
TEST(Logprobs, WriteIdsThatTheTokenizerDoesNotHave) {
  const auto beyond = static_cast<std::int32_t>(tokenizer().vocab_size());
  LogprobList list;
  list.add({SequenceId{0}, 300, -0.5F, {{beyond, -0.25F}}}, 0);
  const std::string name = "\"token_id:" + std::to_string(beyond) + "\"";
  EXPECT_THAT(to_text(list.to_json(tokenizer())), testing::HasSubstr(name + ":-0.25"));
  EXPECT_THAT(to_text(list.to_chat_json(tokenizer())),
              testing::HasSubstr(name + ",\"logprob\":-0.25,\"bytes\":[]"));
}

TEST(Logprobs, HaveNoKeyTwice) {
  LogprobList list;
  list.add({SequenceId{0}, 300, -0.5F, {{300, -0.5F}, {301, -1.0F}}}, 0);
  const std::string text = to_text(list.to_json(tokenizer()));
  EXPECT_NO_THROW(parse_json(text, "logprobs"));
}

}  // namespace
}  // namespace longhaul
