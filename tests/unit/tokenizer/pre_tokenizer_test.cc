#include "model/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul::tokenization {
namespace {

using testing::ElementsAre;

std::vector<std::string> words(std::string_view json_text, std::string_view text) {
  const Json json = parse_json(json_text, "test");
  const PreTokenizer pre_tokenizer = PreTokenizer::from_json(JsonField(json, "test"));
  WordSplitter splitter(pre_tokenizer);
  std::vector<std::string> out;
  splitter.split(text, /*is_first=*/true, 0,
                 [&](std::string_view word) { out.emplace_back(word); });
  return out;
}

std::vector<std::string> split(const std::string& behavior, std::string_view text,
                               const std::string& invert = "false") {
  return words(R"({"type":"Split","pattern":{"String":"-"},"behavior":")" + behavior +
                   R"(","invert":)" + invert + "}",
               text);
}

// The examples of the `tokenizers` library's documentation.
TEST(PreTokenizer, HasFiveSplitBehaviors) {
  EXPECT_THAT(split("Removed", "the-final--countdown"), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(split("Isolated", "the-final--countdown"),
              ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(split("MergedWithPrevious", "the-final--countdown"),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(split("MergedWithNext", "the-final--countdown"),
              ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(split("Contiguous", "the-final--countdown"),
              ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(split("Removed", "the-final--countdown", "true"), ElementsAre("-", "-", "-"));
}

TEST(PreTokenizer, ByteLevelIsGpt2s) {
  EXPECT_THAT(words(R"({"type":"ByteLevel","add_prefix_space":false})", "I'll go  to\n\n 12 ?!"),
              ElementsAre("I", "'ll", " go", " ", " to", "\n\n", " 12", " ?!"));
  EXPECT_THAT(words(R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":false})", "a b"),
              ElementsAre(" a b"));
}

TEST(PreTokenizer, MetaspacePrefixes) {
  const auto metaspace = [](const std::string& rest, std::string_view text) {
    return words(R"({"type":"Metaspace","replacement":"▁",)" + rest + "}", text);
  };
  EXPECT_THAT(metaspace(R"("prepend_scheme":"always","split":true)", "a  b"),
              ElementsAre("▁a", "▁", "▁b"));
  EXPECT_THAT(metaspace(R"("prepend_scheme":"never","split":false)", "a  b"), ElementsAre("a▁▁b"));
  EXPECT_THAT(metaspace(R"("prepend_scheme":"first","split":false)", " a"), ElementsAre("▁a"));
  EXPECT_THAT(metaspace(R"("add_prefix_space":false)", "a"), ElementsAre("a"));
  EXPECT_THAT(words(R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":"-"},
    "behavior":"Removed"},{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}]})",
                    "a-b"),
              ElementsAre("▁a", "b"));
}

TEST(PreTokenizer, SplitsDigits) {
  EXPECT_THAT(words(R"({"type":"Digits","individual_digits":true})", "a12½"),
              ElementsAre("a", "1", "2", "½"));
  EXPECT_THAT(words(R"({"type":"Digits","individual_digits":false})", "a12b"),
              ElementsAre("a", "12", "b"));
}

TEST(PreTokenizer, RefusesByName) {
  try {
    words(R"({"type":"UnicodeScripts"})", "a");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_STREQ(error.what(), "test: type: the pre-tokenizer \"UnicodeScripts\" is not supported");
  }
}

}  // namespace
}  // namespace longhaul::tokenization
