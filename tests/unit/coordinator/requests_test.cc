#include "coordinator/requests.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/sha256.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

std::string line_of(std::string_view id, std::string_view body) {
  return fmt::format(R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{}}})"
                     "\n",
                     id, body);
}

Request only_request(const std::string& text) {
  const ParsedRequests parsed = parse_requests(text, "r.jsonl");
  EXPECT_EQ(parsed.problems.size(), 0U) << parsed.problems.at(0).message;
  EXPECT_EQ(parsed.requests.size(), 1U);
  return parsed.requests.at(0);
}

TEST(Requests, ReadsEveryField) {
  const Request r = only_request(line_of(
      "a", R"({"model":"m","prompt":"Hi","documents":[{"path":"x.txt"},{"path":"y.txt",)"
           R"("sha256":"00000000000000000000000000000000000000000000000000000000000000AB"}],)"
           R"("max_tokens":5,"temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1,"seed":7,)"
           R"("stop":["\n","END"],"n":1,"logprobs":3,"echo":true,"user":"u",)"
           R"("metadata":{"a":1},"stream":false})"));
  EXPECT_EQ(std::get<std::string>(r.prompts.at(0)), "Hi");
  ASSERT_EQ(r.documents.size(), 2U);
  EXPECT_EQ(r.documents[0].path, "x.txt");
  EXPECT_EQ(r.documents[1].sha256->substr(62), "ab");
  EXPECT_EQ(r.max_tokens, 5);
  EXPECT_EQ(r.temperature, 0.5);
  EXPECT_EQ(r.top_p, 0.9);
  EXPECT_EQ(r.top_k, 0);
  EXPECT_EQ(r.min_p, 0.1);
  EXPECT_EQ(r.seed, 7U);
  EXPECT_THAT(r.stop.value(), testing::ElementsAre("\n", "END"));
  EXPECT_EQ(r.n_logprobs, 3);
  EXPECT_TRUE(r.echo);
  EXPECT_EQ(r.line, 1);
}

TEST(Requests, ReadsSeveralPromptsAndAnswers) {
  const Request texts = only_request(line_of("a", R"({"prompt":["x","y"],"n":2,"best_of":3})"));
  ASSERT_EQ(texts.prompts.size(), 2U);
  EXPECT_EQ(std::get<std::string>(texts.prompts[1]), "y");
  EXPECT_EQ(texts.n, 2);
  EXPECT_EQ(texts.best_of, 3);
  const Request ids = only_request(line_of("a", R"({"prompt":[[1,2],[3]],"n":4})"));
  ASSERT_EQ(ids.prompts.size(), 2U);
  EXPECT_THAT(std::get<std::vector<std::int32_t>>(ids.prompts[0]), testing::ElementsAre(1, 2));
  EXPECT_EQ(ids.best_of, 4);
}

TEST(Requests, ReadsWhatChangesLogits) {
  const Request r = only_request(
      line_of("a", R"({"prompt":"x","presence_penalty":-2,"frequency_penalty":0.5,"min_tokens":3,)"
                   R"("repetition_penalty":1.1,"logit_bias":{"12":-1000,"3":1.5}})"));
  EXPECT_EQ(r.presence_penalty, -2);
  EXPECT_EQ(r.frequency_penalty, 0.5);
  EXPECT_EQ(r.repetition_penalty, 1.1);
  EXPECT_THAT(r.logit_bias, testing::ElementsAre(TokenBias{3, 1.5F}, TokenBias{12, -100}));
  EXPECT_EQ(r.min_tokens, 3);
}

TEST(Requests, ReadsTheFormOfAnAnswer) {
  using forms::FormKind;
  const auto form = [](std::string_view fields) {
    const auto r = only_request(line_of("a", fmt::format(R"({{"prompt":"x",{}}})", fields)));
    return r.form.value_or(forms::FormSource{FormKind::kRegex, "none"});
  };
  EXPECT_EQ(form(R"("response_format":{"type":"json_object"})").kind, FormKind::kJsonObject);
  EXPECT_EQ(form(R"("response_format":{"type":"text"})").text, "none");
  EXPECT_EQ(form(R"("guided_json":null,"guided_decoding_backend":"auto")").text, "none");
  const forms::FormSource schema{FormKind::kJsonSchema, R"({"type":"null"})"};
  for (
      const char* fields :
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type": "null"}}})",
       R"("guided_json":{"type":"null"})", R"("guided_json":"{\"type\":\"null\"}")",
       R"("response_format":{"type":"json_object","schema":{"type":"null"},"json_schema":null})",
       R"("structured_outputs":{"json":{"type":"null"}})"}) {
    EXPECT_TRUE(form(fields) == schema) << fields;
  }
  EXPECT_TRUE(form(R"("guided_regex":"a+")") == (forms::FormSource{FormKind::kRegex, "a+"}));
  EXPECT_TRUE(form(R"("guided_choice":["a", "b"])") ==
              (forms::FormSource{FormKind::kChoice, R"(["a","b"])"}));
}

TEST(Requests, RefusesFormsByName) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"("guided_grammar":"root ::= x")", "body.guided_grammar: is not supported"},
      {R"("guided_whitespace_pattern":" ")", "body.guided_whitespace_pattern: is not supported"},
      {R"("response_format":{"type":"structural_tag"})",
       "body.response_format.type: \"structural_tag\""},
      {R"("response_format":{"type":"text","json_schema":{"schema":{}}})",
       "body.response_format.json_schema: has no meaning beside this type"},
      {R"("response_format":{"type":"json_object","json_schema":{"schema":{}}})",
       "body.response_format.json_schema: has no meaning beside this type; \"schema\" has"},
      {R"("guided_json":{"type":"array","uniqueItems":true})", "\"uniqueItems\" is not supported"},
      {R"("guided_json":"{")", "body.guided_json: "},
      {R"x("guided_regex":"a(?=b)")x", "look-around"},
      {R"("guided_choice":[])", "body.guided_choice"},
      {R"("guided_choice":"x")", "body.guided_choice"},
      {R"("guided_regex":"a","guided_choice":["a"])",
       "body.guided_choice: a second form beside body.guided_regex"},
      {R"("structured_outputs":{"grammar":"x"})", "body.structured_outputs.grammar: not supported"},
  };
  for (const auto& [fields, reason] : cases) {
    const ParsedRequests parsed =
        parse_requests(line_of("a", fmt::format(R"({{"prompt":"x",{}}})", fields)), "r");
    ASSERT_EQ(parsed.problems.size(), 1U) << fields;
    EXPECT_THAT(parsed.problems[0].message, HasSubstr(reason)) << fields;
  }
}

TEST(Requests, LeavesOpenWhatIsNotSaid) {
  const Request r = only_request(line_of("a", R"({"prompt":[1,2,3],"seed":null})"));
  EXPECT_THAT(std::get<std::vector<std::int32_t>>(r.prompts.at(0)), testing::ElementsAre(1, 2, 3));
  EXPECT_FALSE(r.max_tokens || r.temperature || r.top_k || r.top_p || r.min_p || r.seed);
  EXPECT_TRUE(r.documents.empty() && !r.stop && !r.echo);
  EXPECT_EQ(r.n_logprobs, -1);
}

TEST(Requests, BodyHashDoesNotDependOnTheOrderOfKeys) {
  const auto hash = [](std::string_view body) {
    return only_request(line_of("a", body)).body_sha256;
  };
  EXPECT_EQ(hash(R"({"prompt":"x", "max_tokens":1})"), hash(R"({"max_tokens":1,"prompt":"x"})"));
  EXPECT_NE(hash(R"({"prompt":"x"})"), hash(R"({"prompt":"y"})"));
  EXPECT_EQ(hash(R"({"prompt":"x"})"), sha256_of(R"({"prompt":"x"})"));
}

struct BadLine {
  std::string name;
  std::string line;
  std::string message;
};
void PrintTo(const BadLine& value, std::ostream* out) { *out << value.name; }
class BadRequests : public testing::TestWithParam<BadLine> {};

TEST_P(BadRequests, AreNamedWithTheirLine) {
  const std::string good = line_of("good", R"({"prompt":"x"})");
  const ParsedRequests parsed =
      parse_requests(good + "\n" + GetParam().line + line_of("later", R"({"prompt":"x"})"), "r");
  EXPECT_EQ(parsed.requests.size(), 2U);
  ASSERT_EQ(parsed.problems.size(), 1U);
  const std::string text = describe(parsed.problems[0], "r");
  EXPECT_EQ(text.substr(0, 5), "r:3: ");
  EXPECT_THAT(text, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadRequests,
    testing::Values(
        BadLine{"Syntax", "{\"custom_id\":\n", "syntax error"},
        BadLine{"NotAnObject", "[1]\n", "expected an object with custom_id"},
        BadLine{"NoId",
                R"({"method":"POST"})"
                "\n",
                "custom_id is missing"},
        BadLine{"EmptyId", line_of("", "{}"), "custom_id: must have 1 to 512 bytes"},
        BadLine{"UsedTwice", line_of("good", R"({"prompt":"y"})"),
                "custom_id \"good\" was already used in line 1"},
        BadLine{"Chat",
                R"({"custom_id":"c","method":"POST","url":"/v1/chat/completions","body":{}})"
                "\n",
                "body.messages is missing"},
        BadLine{"Url",
                R"({"custom_id":"c","method":"POST","url":"/v1/embeddings","body":{}})"
                "\n",
                "\"/v1/embeddings\" is not served"},
        BadLine{"Method",
                R"({"custom_id":"c","method":"GET","url":"/v1/completions","body":{}})"
                "\n",
                "method: must be \"POST\""},
        BadLine{"Envelope",
                R"({"custom_id":"c","method":"POST","url":"/v1/completions","body":{},"x":1})"
                "\n",
                "unknown field \"x\"; a line has"},
        BadLine{"NoPrompt", line_of("c", "{}"), "body.prompt is missing"},
        BadLine{"PromptKind", line_of("c", R"({"prompt":3})"),
                "expected a string, a list of token ids"},
        BadLine{"PromptIds", line_of("c", R"({"prompt":[1,-2]})"), "body.prompt[1]: expected a"},
        BadLine{"PromptFraction", line_of("c", R"({"prompt":[1.5]})"), "body.prompt[0]: expected"},
        BadLine{"Prompts", line_of("c", R"({"prompt":["a",[1]]})"),
                "body.prompt[1]: expected a string"},
        BadLine{"PromptLists", line_of("c", R"({"prompt":[[1],2]})"),
                "body.prompt[1]: expected a list of token ids"},
        BadLine{"PromptIdsThenText", line_of("c", R"({"prompt":[1,"a"]})"),
                "body.prompt[1]: expected a token id"},
        BadLine{"Unknown", line_of("c", R"({"prompt":"x","colour":1})"),
                "unknown field \"colour\"; accepted are prompt, documents"},
        BadLine{"Misspelt", line_of("c", R"({"prompt":"x","temprature":1})"),
                "unknown field \"temprature\"; did you mean \"temperature\"?"},
        BadLine{"NotNeutral", line_of("c", R"({"prompt":"x","length_penalty":2.0})"),
                "body.length_penalty: is not supported; accepted without effect is null or 1"},
        BadLine{"Messages", line_of("c", R"({"messages":[]})"),
                "\"messages\" is a field of /v1/chat/completions, not of /v1/completions"},
        BadLine{"N", line_of("c", R"({"prompt":"x","n":0})"), "body.n: 0 is outside [1, 128]"},
        BadLine{"BestOf", line_of("c", R"({"prompt":"x","n":3,"best_of":2})"),
                "body.best_of: is 2, less than the 3 answers"},
        BadLine{"Presence", line_of("c", R"({"prompt":"x","presence_penalty":2.5})"),
                "body.presence_penalty: 2.5 is outside [-2, 2]"},
        BadLine{"Repetition", line_of("c", R"({"prompt":"x","repetition_penalty":0})"),
                "body.repetition_penalty: 0 is outside [0.001, 1000]"},
        BadLine{"BiasList", line_of("c", R"({"prompt":"x","logit_bias":[1]})"),
                "body.logit_bias: expected an object of token ids"},
        BadLine{"BiasName", line_of("c", R"({"prompt":"x","logit_bias":{"the":1}})"),
                "body.logit_bias: \"the\" is not a token id"},
        BadLine{"BiasTwice", line_of("c", R"({"prompt":"x","logit_bias":{"7":1,"07":2}})"),
                "token id 7 is there twice"},
        BadLine{"BiasKind", line_of("c", R"({"prompt":"x","logit_bias":{"7":"up"}})"),
                "body.logit_bias.7: expected a number"},
        BadLine{"Stream", line_of("c", R"({"prompt":"x","stream":true})"), "body.stream: results"},
        BadLine{"TopP", line_of("c", R"({"prompt":"x","top_p":1.5})"), "1.5 is outside [0, 1]"},
        BadLine{"MaxTokens", line_of("c", R"({"prompt":"x","max_tokens":-1})"),
                "body.max_tokens: -1 is outside"},
        BadLine{"Logprobs", line_of("c", R"({"prompt":"x","logprobs":21})"), "outside [0, 20]"},
        BadLine{"LogprobsBool", line_of("c", R"({"prompt":"x","logprobs":true})"),
                "body.logprobs: /v1/completions takes a number"},
        BadLine{"Temperature", line_of("c", R"({"prompt":"x","temperature":"hot"})"),
                "body.temperature: expected a number, found a string"},
        BadLine{"EmptyStop", line_of("c", R"({"prompt":"x","stop":""})"), "empty stop string"},
        BadLine{"Stops",
                line_of("c", R"({"prompt":"x","stop":["1","2","3","4","5","6","7","8","9",)"
                             R"("10","11","12","13","14","15","16","17"]})"),
                "17 stop strings; at most 16"},
        BadLine{"Document", line_of("c", R"({"prompt":"x","documents":["a.txt"]})"),
                "body.documents[0]: expected {\"path\""},
        BadLine{"DocumentField", line_of("c", R"({"prompt":"x","documents":[{"file":"a"}]})"),
                "unknown field \"file\""},
        BadLine{"Sha", line_of("c", R"({"prompt":"x","documents":[{"path":"a","sha256":"12"}]})"),
                "body.documents[0].sha256: a SHA-256 has 64"},
        BadLine{"TwoKeys", line_of("c", R"({"prompt":"x","prompt":"y"})"), "appears twice"},
        BadLine{"Utf8", line_of("c", "{\"prompt\":\"\xff\"}"), "UTF-8"}),
    [](const auto& param) { return param.param.name; });

TEST(Requests, ProblemsTellTheCustomIdWhereThereIsOne) {
  const ParsedRequests parsed =
      parse_requests(line_of("a", R"({"prompt":"x"})") + line_of("b", "{}") + "nothing\n" +
                         line_of("a", R"({"prompt":"y"})") + "{\"custom_id\":7}\n",
                     "r");
  std::vector<std::string> ids;
  for (const Problem& problem : parsed.problems) ids.push_back(problem.custom_id);
  EXPECT_THAT(ids, testing::ElementsAre("b", "", "a", ""));
}

TEST(Requests, SkipsEmptyLinesAByteOrderMarkAndCarriageReturns) {
  const ParsedRequests parsed =
      parse_requests("\xEF\xBB\xBF\r\n  \n" + line_of("a", R"({"prompt":"x"})") + "\r\n", "r");
  EXPECT_TRUE(parsed.problems.empty());
  ASSERT_EQ(parsed.requests.size(), 1U);
  EXPECT_EQ(parsed.requests[0].line, 3);
}

TEST(Requests, ReadsTheExample) {
  const auto path = test::example_path("requests.jsonl");
  const ParsedRequests parsed = parse_requests(read_file(path, 1 << 20), path.string());
  EXPECT_TRUE(parsed.problems.empty());
  EXPECT_EQ(parsed.requests.size(), 5U);
}

TEST(Sha256, GivesPublishedValues) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 hash;
  hash.add("a");
  hash.add("bc");
  EXPECT_EQ(hash.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace longhaul
