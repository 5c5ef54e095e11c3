// /v1/chat/completions in request files: what is read, what is refused, where documents go.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "coordinator/chat_body.h"
#include "coordinator/requests.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

ParsedRequests parsed(std::string_view body) {
  return parse_requests(
      fmt::format(R"({{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}}})",
                  body),
      "r");
}

Request request_of(std::string_view body) {
  const ParsedRequests all = parsed(body);
  EXPECT_TRUE(all.problems.empty()) << all.problems.front().message;
  return all.requests.at(0);
}

std::string problem_of(std::string_view body) {
  const ParsedRequests all = parsed(body);
  return all.problems.empty() ? "none" : all.problems.front().message;
}

constexpr std::string_view kHello = R"("messages":[{"role":"user","content":"Hi"}])";

TEST(ChatRequests, ReadsWhatAFileForVllmHolds) {
  const Request request = request_of(fmt::format(
      R"({{"model":"m",{},"max_completion_tokens":7,"temperature":0.5,"top_k":-1,"n":1,"stream":false,)"
      R"("presence_penalty":0,"frequency_penalty":0.0,"repetition_penalty":1.0,"logit_bias":{{}},)"
      R"("response_format":{{"type":"text"}},"tools":[],"tool_choice":"none","logprobs":true,"top_logprobs":2,)"
      R"("stop_token_ids":[5],"ignore_eos":true,"min_tokens":0,"skip_special_tokens":true,"best_of":1,)"
      R"("length_penalty":1,"use_beam_search":false,"add_special_tokens":false,"guided_json":null,)"
      R"("chat_template_kwargs":{{"enable_thinking":false}},"user":"u"}})",
      kHello));
  ASSERT_NE(request.chat(), nullptr);
  EXPECT_EQ(to_text(request.chat()->variables),
            R"({"messages":[{"role":"user","content":"Hi"}],"enable_thinking":false})");
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.n_logprobs, 2);
  EXPECT_THAT(request.stop_token_ids, testing::ElementsAre(5));
  EXPECT_TRUE(request.ignore_eos);
}

TEST(ChatRequests, RefusesByName) {
  const auto with = [](std::string_view more) { return fmt::format("{{{},{}}}", kHello, more); };
  EXPECT_THAT(problem_of("{}"), HasSubstr("messages is missing"));
  EXPECT_THAT(problem_of(R"({"messages":[]})"), HasSubstr("has no message"));
  EXPECT_THAT(problem_of(R"({"messages":[{"role":"user"}]})"),
              HasSubstr("messages[0].content is missing"));
  EXPECT_THAT(problem_of(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})"),
              HasSubstr("content is text"));
  EXPECT_THAT(problem_of(with(R"("prompt":"x")")), HasSubstr("is a field of /v1/completions"));
  EXPECT_THAT(problem_of(with(R"("max_completion_token":3)")),
              HasSubstr("did you mean \"max_completion_tokens\"?"));
  EXPECT_THAT(problem_of(with(R"("max_tokens":5,"max_completion_tokens":2)")),
              HasSubstr("max_completion_tokens: is 2, and \"max_tokens\" 5"));
  EXPECT_THAT(problem_of(with(R"("tool_choice":"required")")), HasSubstr("only \"auto\""));
  EXPECT_THAT(problem_of(with(R"("documents_place":"middle")")), HasSubstr("none of first_user"));
  EXPECT_THAT(problem_of(with(R"("top_logprobs":3)")), HasSubstr("needs \"logprobs\": true"));
  EXPECT_THAT(
      problem_of(R"({"messages":[{"role":"system","content":"x"}],"documents":[{"text":"d"}]})"),
      HasSubstr("no user message for the documents"));
  EXPECT_THAT(problem_of(with(R"("documents":[{"text":"d","path":"p"}])")),
              HasSubstr("both a path and a text"));
}

TEST(ChatRequests, PutsDocumentsWhereTheyAreToStand) {
  const auto placed = [](std::string_view body) {
    return to_text(*with_documents(*request_of(body).chat(), "DOC\n\n").find("messages"));
  };
  const std::string_view two =
      R"("messages":[{"role":"user","content":"A"},{"role":"assistant","content":"B"},{"role":"user","content":[{"type":"text","text":"C"}]}])";
  EXPECT_EQ(
      placed(fmt::format("{{{}}}", two)),
      R"([{"role":"user","content":"DOC\n\nA"},{"role":"assistant","content":"B"},{"role":"user","content":[{"type":"text","text":"C"}]}])");
  EXPECT_EQ(
      placed(fmt::format(R"({{{},"documents_place":"last_user"}})", two)),
      R"([{"role":"user","content":"A"},{"role":"assistant","content":"B"},{"role":"user","content":[{"type":"text","text":"DOC\n\nC"}]}])");
  EXPECT_EQ(placed(fmt::format(R"({{{},"documents_place":"system"}})", kHello)),
            R"([{"role":"system","content":"DOC\n\n"},{"role":"user","content":"Hi"}])");
}

TEST(ChatRequests, ShareWhatStandsBeforeTheDocuments) {
  const auto before = [](std::string_view messages) {
    return before_documents(*request_of(fmt::format(R"({{"messages":{}}})", messages)).chat());
  };
  EXPECT_EQ(before(R"([{"role":"user","content":"A"}])"),
            before(R"([{"role":"user","content":"B"}])"));
  EXPECT_NE(before(R"([{"role":"system","content":"S"},{"role":"user","content":"A"}])"),
            before(R"([{"role":"system","content":"T"},{"role":"user","content":"A"}])"));
}

}  // namespace
}  // namespace longhaul
