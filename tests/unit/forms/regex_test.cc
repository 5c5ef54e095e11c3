#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/unit/forms/words.h"

namespace longhaul::test {
namespace {

using testing::HasSubstr;

TEST(Regex, MatchesFromEndToEnd) {
  const Words words = regex("(ab|c)+d?");
  for (const char* good : {"ab", "c", "abc", "cabd", "ccd"}) EXPECT_TRUE(words.has(good)) << good;
  for (const char* bad : {"", "a", "abx", "d", "abdd", "xab"}) EXPECT_FALSE(words.has(bad)) << bad;
}

TEST(Regex, ClassesAndEscapes) {
  const Words words = regex(R"([a-c\]x-]\d\x41\u00e9[^0-9\s]\.)");
  EXPECT_TRUE(words.has("]7A\u00e9z."));
  EXPECT_TRUE(words.has("-0A\u00e9\u20ac."));
  EXPECT_FALSE(words.has("d7A\u00e9z."));
  EXPECT_FALSE(words.has("a7A\u00e9 ."));
  EXPECT_FALSE(words.has("a7A\u00e95."));
  EXPECT_TRUE(regex("[]a]").has("]"));
  EXPECT_TRUE(regex("a{2").has("a{2"));
  EXPECT_TRUE(regex(R"(\u{1F600}|\ud83d\ude01)").has("\U0001F601"));
}

TEST(Regex, CharactersAreUnicodeAndWhole) {
  const Words words = regex(".{3}");
  EXPECT_TRUE(words.has("a\u20ac\U0001F600"));
  EXPECT_FALSE(words.has("\xe2\x82"));
  EXPECT_FALSE(words.has("\xed\xa0\x80\xed\xa0\x80\xed\xa0\x80"));  // surrogates
  EXPECT_FALSE(words.has("\xc0\x80\xc0\x80\xc0\x80"));              // too long
  EXPECT_FALSE(words.has("a\nb"));
  EXPECT_TRUE(regex("[^a]").has("\n"));
}

TEST(Regex, Counts) {
  const Words words = regex("(?:ab){2,3}x{,2}y{2}z{1,}");
  EXPECT_TRUE(words.has("ababyyz"));
  EXPECT_TRUE(words.has("abababxxyyzzz"));
  EXPECT_FALSE(words.has("abyyz"));
  EXPECT_FALSE(words.has("ababababyyz"));
  EXPECT_FALSE(words.has("ababxxxyyz"));
  EXPECT_FALSE(words.has("ababyz"));
  EXPECT_TRUE(regex("(a?){3}").has(""));
  EXPECT_FALSE(regex("(a?){3}").has("aaaa"));
  EXPECT_TRUE(regex("x{0}").has(""));
}

TEST(Regex, AnchorsAtTheEnds) {
  EXPECT_TRUE(regex("^a|b$").has("b"));
  EXPECT_TRUE(regex(R"(\Aab\Z)").has("ab"));
  EXPECT_FALSE(regex("^a|b$").has("ab"));
}

TEST(Regex, LazyMeansTheSameWords) { EXPECT_TRUE(regex("a+?b*?c??").has("aabbc")); }

TEST(Regex, RefusalsNameThePlaceAndTheConstruct) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"(a\b)", "character 4: \\b (the edge of a word)"},
      {R"((a)\1)", "\\1 (a back-reference)"},
      {"(?=a)", "(?= (look-around)"},
      {"(?<!a)b", "(?<! (look-around)"},
      {"(?i)a", "groups that begin with (?i"},
      {"a++", "possessive"},
      {"(?>a)", "groups that begin with (?>"},
      {"a^b", "ends of the expression"},
      {"(^a)", "ends of the expression"},
      {R"(\p{L})", "the escape \\p"},
      {"[[:alpha:]]", "POSIX"},
      {"*a", "nothing to repeat"},
      {"a**", "a quantifier behind a quantifier"},
      {"(a", "without its ')'"},
      {"a)", "without its '('"},
      {"[a", "without its ']'"},
      {"[b-a]", "ends before it begins"},
      {"a{3,2}", "before its begin"},
      {"a{9999999}", "counts end at"},
      {"a\\", "ends in the middle"},
      {"\xff", "no UTF-8"},
      {R"(\ud800)", "surrogate"},
      {"[^\\d\\D]", "allows no text"},
  };
  for (const auto& [pattern, reason] : cases) {
    try {
      regex(pattern);
      ADD_FAILURE() << pattern << " was taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(reason)) << pattern;
    }
  }
}

TEST(Regex, DeepNestingAndLongChainsAreBounded) {
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += '(';
  EXPECT_THROW(regex(deep), Error);
  std::string optional;
  std::string letters;
  for (int i = 0; i < 20000; ++i) {
    optional += "a?";
    letters += "(b)";
  }
  EXPECT_TRUE(regex(letters).has(std::string(20000, 'b')));
  EXPECT_TRUE(regex(optional).has(""));
}

}  // namespace
}  // namespace longhaul::test
