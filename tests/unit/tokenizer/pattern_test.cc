// Oniguruma expressions on PCRE2. Wanted values are those of the `tokenizers` library.
#include "model/tokenizer/pattern.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul::tokenization {
namespace {

Pattern compile(const std::string& expression) {
  const Json json(expression);
  return Pattern::regex(expression, JsonField(json, "tokenizer.json", "pattern.Regex"));
}

// The text with every match in brackets.
std::string marked(const std::string& expression, std::string_view text) {
  const Pattern pattern = compile(expression);
  Matcher matcher(pattern);
  MatchWalk walk(matcher, text);
  std::string out;
  std::size_t done = 0;
  while (const auto match = walk.next()) {
    out.append(text.substr(done, match->begin - done)).append("[");
    out.append(text.substr(match->begin, match->end - match->begin)).append("]");
    done = match->end;
  }
  return out.append(text.substr(done));
}

TEST(Pattern, WhiteSpaceIsUnicodes) {
  EXPECT_EQ(marked("\\s", "a\u0085\u00A0\u3000\u180E\u200B\uFEFFb"),
            "a[\u0085][\u00A0][\u3000]\u180E\u200B\uFEFFb");
  EXPECT_EQ(marked("\\S+", "a\u180E b"), "[a\u180E] [b]");
  EXPECT_EQ(marked("[^\\S\n]+", " \t\nx "), "[ \t]\nx[ ]");
  EXPECT_EQ(marked("[\\S\n]", " \nx"), " [\n][x]");
}

TEST(Pattern, KnowsCharactersNewerThanTheLibrary) {
  EXPECT_EQ(marked("\\p{L}+", "x\U00031350\U00016D40y"), "[x\U00031350\U00016D40y]");
  EXPECT_EQ(marked("[^\\p{L}]", "\U00031350."), "\U00031350[.]");
  EXPECT_EQ(marked("\\P{L}", "\U00031350."), "\U00031350[.]");
  EXPECT_EQ(marked("\\p{^L}", "\U00031350."), "\U00031350[.]");
}

TEST(Pattern, ReadsRubySyntax) {
  EXPECT_EQ(marked("\\h", "g1f"), "g[1][f]");  // a hexadecimal digit
  EXPECT_EQ(marked("(?m:.)", "\n"), "[\n]");
  EXPECT_EQ(marked(".", "\r\n"), "[\r]\n");
  EXPECT_EQ(marked("^a", "a\na"), "[a]\n[a]");  // always at lines
  EXPECT_EQ(marked("a$", "a\na"), "[a]\n[a]");
  EXPECT_EQ(marked("\\u0041", "A"), "[A]");
  EXPECT_EQ(marked("a{,2}b", "aaab"), "a[aab]");
  EXPECT_EQ(marked("\\w", "²é\u0301-"), "[²][é][\u0301]-");
  EXPECT_EQ(marked("\\bfoo\\b", "foo afoo"), "[foo] afoo");
  EXPECT_EQ(marked("(?i:'s)", "'S'ſ"), "['S]['ſ]");
}

TEST(Pattern, SkipsAnEmptyMatchBehindAMatch) { EXPECT_EQ(marked("a*", "baac"), "[]b[aa]c[]"); }

TEST(Pattern, RefusesWhatItCannotTranslate) {
  for (const char* expression :
       {"\\p{Greek}", "[a&&b]", "[a[b]]", "(?<n>a)\\k<n>", "\\K", "\\G", "a{1,2}+", "a{2}?",
        "x(?i)a", "[[:alpha:]]", "\\X", "\\1", "\\pL"}) {
    try {
      compile(expression);
      ADD_FAILURE() << expression << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << expression;
      EXPECT_NE(std::string(error.what()).find("tokenizer.json: pattern.Regex"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Pattern, RefusesWhatIsNoExpression) {
  for (const char* expression : {"(a", "[a", "*a", "\\p{L", "[z-a]", "\\"}) {
    try {
      compile(expression);
      ADD_FAILURE() << expression << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << expression;
    }
  }
}

TEST(Matcher, StartsMatchesBelowTheLimitOnly) {
  const Pattern pattern = compile("b+");
  Matcher matcher(pattern);
  EXPECT_FALSE(matcher.find("aabbb", 0, 2));
  const auto match = matcher.find("aabbb", 0, 3);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->begin, 2U);
  EXPECT_EQ(match->end, 5U);
  const Pattern literal = Pattern::literal("bb");
  Matcher finder(literal);
  EXPECT_FALSE(finder.find("aabbb", 0, 2));
  EXPECT_TRUE(finder.find("aabbb", 0, 3));
}

}  // namespace
}  // namespace longhaul::tokenization
