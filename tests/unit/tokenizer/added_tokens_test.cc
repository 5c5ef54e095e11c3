#include "model/tokenizer/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

using testing::ElementsAre;

// Parts as texts, added tokens with their id in front.
std::vector<std::string> parts(std::vector<AddedToken> tokens, std::string_view text,
                               bool parse_special = true) {
  std::vector<std::string> texts;
  for (const AddedToken& token : tokens) texts.push_back(token.content);
  std::vector<std::string> out;
  for (const TextPart& part : AddedTokenSet(tokens, texts).split(text, {.parse = parse_special})) {
    const std::string piece(text.substr(part.begin, part.end - part.begin));
    out.push_back(part.id == TextPart::kText ? piece : std::to_string(part.id) + ":" + piece);
  }
  return out;
}

TEST(AddedTokens, TakesTheLeftmostThenTheLongest) {
  EXPECT_THAT(parts({{1, "ab"}, {2, "abc"}, {3, "bcd"}}, "xabcdbcd"),
              ElementsAre("x", "2:abc", "d", "3:bcd"));
}

TEST(AddedTokens, CoversTheText) {
  EXPECT_THAT(parts({{1, "<s>"}}, ""), ElementsAre());
  EXPECT_THAT(parts({{1, "<s>"}}, "<s><s"), ElementsAre("1:<s>", "<s"));
  EXPECT_THAT(parts({}, "<s>"), ElementsAre("<s>"));
}

TEST(AddedTokens, ASpecialTokenThatIsTextHidesWhatOverlaps) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<ab>", .special = true},
                                          {.id = 2, .content = "ab"}};
  EXPECT_THAT(parts(tokens, "ab<ab>ab", false), ElementsAre("2:ab", "<ab>", "2:ab"));
  EXPECT_THAT(parts(tokens, "ab<ab>ab", true), ElementsAre("2:ab", "1:<ab>", "2:ab"));
}

TEST(AddedTokens, TakesWhiteSpaceAlong) {
  EXPECT_THAT(parts({{.id = 1, .content = "<m>", .lstrip = true, .rstrip = true}},
                    "a \t<m>\u3000 b <m><m> "),
              ElementsAre("a", "1: \t<m>\u3000 ", "b", "1: <m>", "1:<m> "));
}

TEST(AddedTokens, StandsAloneWhenAskedTo) {
  const AddedToken word{.id = 1, .content = "<w>", .single_word = true};
  EXPECT_THAT(parts({word}, "<w>, <w>x-<w> é<w>"),
              ElementsAre("1:<w>", ", <w>x-", "1:<w>", " é<w>"));
}

}  // namespace
}  // namespace longhaul::tokenization
