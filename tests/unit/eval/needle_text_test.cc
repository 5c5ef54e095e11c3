// Records, templates, made-up prose, and what counts as a right answer.
#include "tools/eval/needle_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/paths.h"
#include "tools/eval/number_lists.h"

namespace longhaul {
namespace {

using testing::ElementsAre;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

TEST(NeedleRecords, ShareNoWordsUnlessAllowed) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    RandomDraws draws(seed);
    std::set<std::string> seen;
    for (const NeedleRecord& record : make_records(draws, 50, 6, NameWords::kNeverShared)) {
      for (const std::string& word : words_of(record.key)) EXPECT_TRUE(seen.insert(word).second);
      EXPECT_THAT(record.value, testing::MatchesRegex("[0-9]{6}"));
    }
  }
  RandomDraws draws(1);
  EXPECT_THROW(make_records(draws, 60, 6, NameWords::kNeverShared), Error);
  std::set<std::string> keys;
  for (const NeedleRecord& record : make_records(draws, 500, 4, NameWords::kMayRepeat)) {
    EXPECT_TRUE(keys.insert(record.key).second) << record.key;
  }
}

// They stand in both languages; models are trained on those of the example's documents.
TEST(NeedleRecords, AreNamedAsInTheExamplesDocuments) {
  const std::string python = read_file(test::example_path("make_document.py"), 1 << 20);
  const auto listed = [&](const std::string& list) {
    const std::size_t begin = python.find(list + " = (") + list.size() + 4;
    std::string text = python.substr(begin, python.find(").split()", begin) - begin);
    std::replace(text.begin(), text.end(), '"', ' ');
    const std::vector<std::string> words = words_of(text);
    return std::set<std::string>(words.begin(), words.end());
  };
  RandomDraws draws(0);
  std::set<std::string> adjectives, nouns;
  for (const NeedleRecord& record : make_records(draws, 50 * 57, 1, NameWords::kMayRepeat)) {
    const std::vector<std::string> words = words_of(record.key);
    adjectives.insert(words.at(0));
    nouns.insert(words.at(1));
  }
  EXPECT_EQ(adjectives, listed("ADJECTIVES"));
  EXPECT_EQ(nouns, listed("NOUNS"));
}

TEST(NeedleRecords, AreTheSameForTheSameSeedEverywhere) {
  RandomDraws draws(0);  // the generator's published first outputs
  EXPECT_EQ(draws.next(), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(draws.next(), 0x6e789e6aa1b965f4ULL);
  EXPECT_EQ(draws.next(), 0x06c45d188009454fULL);
}

TEST(MadeUpProse, HasNoWordOfAnyKey) {
  RandomDraws draws(7);
  std::set<std::string> key_words;
  for (int i = 0; i < 200; ++i) {
    for (const NeedleRecord& record : make_records(draws, 50, 1, NameWords::kNeverShared)) {
      for (const std::string& word : words_of(record.key)) key_words.insert(word);
    }
  }
  EXPECT_EQ(key_words.size(), 50U + 57U);
  std::string prose = made_up_prose(draws, 200'000);
  EXPECT_GE(prose.size(), 200'000U);
  EXPECT_LT(prose.size(), 200'300U);
  for (char& c : prose) {
    c = c == '.' || c == ',' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const std::string& word : words_of(prose)) EXPECT_FALSE(key_words.contains(word)) << word;
}

TEST(Templates, AreFilled) {
  const NeedleRecord record{.key = "amber {value}", .value = "12"};
  EXPECT_EQ(fill_template(R"(\n{key}: {value}, {value}\t.)", {.key = "a", .value = "12"}),
            "\na: 12, 12\t.");
  EXPECT_EQ(fill_template("nothing", record), "nothing");
}

TEST(ExactMatch, LooksAtTheFirstLineWithoutItsSpaces) {
  EXPECT_TRUE(is_exact_match(" 483920.", "483920."));
  EXPECT_TRUE(is_exact_match("\n\n 483920. \nQuestion: What", "483920."));
  EXPECT_TRUE(is_exact_match("12  34\t5", " 12 34 5"));
  EXPECT_TRUE(is_exact_match("483920.\r\nmore", "483920."));
  EXPECT_FALSE(is_exact_match("483920", "483920."));
  EXPECT_FALSE(is_exact_match("It is 483920.", "483920."));
  EXPECT_FALSE(is_exact_match("4839 20.", "483920."));
  EXPECT_FALSE(is_exact_match("", "483920."));
  EXPECT_FALSE(is_exact_match("x\n483920.", "483920."));
  EXPECT_EQ(normalised_spaces("  a \n\t b  "), "a b");
}

TEST(NumberLists, ReadWhatTheFlagsSay) {
  EXPECT_THAT(parse_counts("1000,4K, 1M", "--lengths"), ElementsAre(1000, 4096, 1 << 20));
  EXPECT_THAT(parse_percentages("0,12.5,100", "--depths"), ElementsAre(0, 0.125, 1));
  EXPECT_THAT(parse_counts("8KB,8KiB", "--lengths"), ElementsAre(8000, 8192));
  for (const char* wrong : {"", "0", "-1", "4X", "1,,2", "K", "0.3K", "99999999999999999999M"}) {
    EXPECT_THROW(parse_counts(wrong, "--lengths"), Error) << wrong;
  }
  for (const char* wrong : {"", "101", "-1", "half", "nan"}) {
    EXPECT_THROW(parse_percentages(wrong, "--depths"), Error) << wrong;
  }
  for (const std::int64_t count : {1, 1000, 1024, 65536, 1 << 20, 3 << 20}) {
    EXPECT_THAT(parse_counts(length_text(count), ""), ElementsAre(count));
  }
  EXPECT_EQ(length_text(65536), "64K");
}

}  // namespace
}  // namespace longhaul
