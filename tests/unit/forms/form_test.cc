// Forms that are large or hostile, and what a cursor says.
#include "model/forms/form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/unit/forms/words.h"

namespace longhaul::test {
namespace {

using forms::FormCursor;
using forms::FormKind;

TEST(Form, SaysWhenAnAnswerMayAndMustEnd) {
  FormCursor cursor = Words({FormKind::kChoice, R"(["yes", "yes!", "no"])"}).cursor();
  EXPECT_FALSE(cursor.may_end());
  EXPECT_TRUE(cursor.advance("yes"));
  EXPECT_TRUE(cursor.may_end());
  EXPECT_FALSE(cursor.must_end());
  EXPECT_FALSE(cursor.advance("?"));
  EXPECT_TRUE(cursor.advance("!"));
  EXPECT_TRUE(cursor.must_end());
  EXPECT_EQ(cursor.allowed()->count(), 0);
}

TEST(Form, ChoicesAreTexts) {
  const Words words({FormKind::kChoice, R"(["a.b", "a\nb", "é"])"});
  EXPECT_TRUE(words.has("a.b"));
  EXPECT_FALSE(words.has("axb"));
  EXPECT_TRUE(words.has("a\nb"));
  EXPECT_TRUE(words.has("é"));
  EXPECT_THROW(Words({FormKind::kChoice, "[]"}), Error);
  EXPECT_THROW(Words({FormKind::kChoice, R"([""])"}), Error);
  EXPECT_THROW(Words({FormKind::kChoice, "[1]"}), Error);
}

TEST(Form, JsonObjectsOfAnyKind) {
  const Words words({FormKind::kJsonObject, ""});
  EXPECT_TRUE(words.has("{}"));
  EXPECT_TRUE(words.has(R"({"a": [1, -2.5e+3, {"b": null}, "x\n\u00e9\ud83d\ude00"], "": true})"));
  EXPECT_TRUE(words.has("{\n  \"a\": 1\n}"));
  for (const char* bad : {"", "[]", "{\"a\"}", "{\"a\":}", "{\"a\":01}", "{\"a\":1,}", "{} ",
                          "{\"a\":\"\n\"}", "{\"a\":\"\\x\"}", "{\"a\":\"\\ud800\"}", "{a:1}",
                          "{\"a\":1.}", "{\"a\":+1}", "{\"a\":nul}", "{\"a\":\"\xff\"}"}) {
    EXPECT_FALSE(words.has(bad)) << bad;
  }
}

TEST(Form, NestingIsBoundedAndAlwaysLeadsToAnEnd) {
  FormCursor cursor = Words({FormKind::kJsonObject, ""}).cursor();
  EXPECT_TRUE(cursor.advance("{\"a\":"));
  int depth = 0;
  while (depth < 1000 && cursor.advance("[")) ++depth;
  EXPECT_GE(depth, 30);
  EXPECT_LT(depth, 40);
  EXPECT_TRUE(cursor.advance(std::string(static_cast<std::size_t>(depth), ']') + "}"));
  EXPECT_TRUE(cursor.must_end());
}

// An expression whose deterministic automaton has 2^n states: only those that are met are made, and
// when there are too many, they are found anew.
TEST(Form, ExponentialAutomataAreNotMade) {
  const Words words = regex("(?:a|b)*a(?:a|b){64}");
  std::string text;
  for (int i = 0; i < 3000; ++i) text += (i * 7919 / 13) % 3 == 0 ? 'a' : 'b';
  text[text.size() - 65] = 'a';
  EXPECT_TRUE(words.has(text));
  text[text.size() - 65] = 'b';
  EXPECT_FALSE(words.has(text));
}

TEST(Form, HostileFormsEndInTimeOrAreRefused) {
  std::string text(300, 'a');
  text += '?';
  for (const char* pattern :
       {"((a{0,1000}){0,1000}){0,1000}", "(a*)*(a*)*(a*)*b", "(.{0,300}a){0,300}",
        "(?:(?:a?){100}){100}a{100}", "(x+x+)+y", "([ab]*a[ab]{200}){3}"}) {
    SCOPED_TRACE(pattern);
    const Words words = regex(pattern);
    try {
      EXPECT_FALSE(words.has(text)) << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << pattern;
    }
  }
}

TEST(Form, SharedByCursorsThatResetIt) {
  const Words words = regex("(?:[ab]*a[ab]{30}c)*");
  FormCursor one = words.cursor();
  FormCursor other = words.cursor();
  std::string text;
  for (int i = 0; i < 200; ++i) {
    const std::string piece = std::string(static_cast<std::size_t>(i % 7), 'b') + "a";
    ASSERT_TRUE(one.advance(piece));
    if (i % 3 == 0) {
      ASSERT_TRUE(other.advance("ab"));
    }
  }
  EXPECT_FALSE(one.may_end());
  EXPECT_GT(other.allowed()->count(), 0);
}

}  // namespace
}  // namespace longhaul::test
