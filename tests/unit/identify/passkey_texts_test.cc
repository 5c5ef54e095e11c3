#include "tools/identify/passkey_texts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace longhaul {
namespace {

// A token for each byte.
std::vector<std::int32_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<std::int32_t>& tokens) {
  return {tokens.begin(), tokens.end()};
}

PasskeyConfig small() {
  PasskeyConfig config;
  config.n_records = 3;
  config.n_words = 2;
  config.shortest = 1000;
  config.longest = 2000;
  config.n_lengths = 5;
  return config;
}

PasskeyTexts texts_of(const PasskeyConfig& config, std::size_t n_hay = 2000) {
  return PasskeyTexts(config, {1}, std::vector<std::int32_t>(n_hay, '.'), bytes_of);
}

TEST(PasskeyTexts, HideRecordsInOrderAndAskForThemAtTheEnd) {
  const PasskeyText text = texts_of(small()).at(0);
  const std::string all = text_of(text.tokens);
  const std::string tail = all.substr(all.size() - static_cast<std::size_t>(text.n_answer));
  EXPECT_EQ(all[0], 1);
  std::size_t at = 0;
  std::size_t asked = 0;
  for (const char* ordinal : {"first", "second", "third"}) {
    const std::string record = std::string("Remember this sequence of words, it's the ") + ordinal +
                               " passkey to the vault: ";
    const std::size_t found = all.find(record, at);
    ASSERT_NE(found, std::string::npos) << ordinal;
    at = found + record.size();
    const std::string value = all.substr(at, all.find('.', at) - at);
    EXPECT_EQ(std::count(value.begin(), value.end(), ' '), 1);
    const std::size_t question =
        tail.find(std::string("what is the ") + ordinal + " passkey", asked);
    ASSERT_NE(question, std::string::npos);
    asked = tail.find("Passkey: ", question) + 9;
    EXPECT_EQ(tail.substr(asked, value.size()), value);
  }
  EXPECT_EQ(all.find("</book>"), all.size() - tail.size() - 10);
}

TEST(PasskeyTexts, LengthsAreEachThereOnceARound) {
  const PasskeyTexts texts = texts_of(small());
  for (const std::int64_t round : {0, 1, 7}) {
    std::set<std::int64_t> lengths;
    for (std::int64_t i = 0; i < 5; ++i) {
      const std::int64_t step = 5 * round + i;
      lengths.insert(texts.length_at(step));
      const std::vector<std::int32_t> tokens = texts.at(step).tokens;
      const auto n_hay = std::count(tokens.begin(), tokens.end(), '.') - 1;  // but for "</book>."
      const auto n_all = static_cast<std::int64_t>(tokens.size());
      EXPECT_LE(n_all, 2000);
      EXPECT_EQ(n_hay, n_all < 2000 ? texts.length_at(step) : n_hay);
    }
    EXPECT_EQ(lengths, (std::set<std::int64_t>{1000, 1250, 1500, 1750, 2000}));
  }
}

TEST(PasskeyTexts, AreTheSameForTheSameSeed) {
  PasskeyConfig other = small();
  other.seed = 43;
  EXPECT_EQ(texts_of(small()).at(3).tokens, texts_of(small()).at(3).tokens);
  EXPECT_NE(texts_of(small()).at(3).tokens, texts_of(other).at(3).tokens);
  EXPECT_NE(texts_of(small()).at(3).tokens, texts_of(small()).at(8).tokens);
}

TEST(PasskeyTexts, CodesHaveTheFormOfNeedles) {
  PasskeyConfig config = small();
  config.form = RecordForm::kCodes;
  config.templates = templates_of(RecordForm::kCodes);
  const std::string all = text_of(texts_of(config).at(0).tokens);
  EXPECT_NE(all.find(" The access code of "), std::string::npos);
  EXPECT_NE(all.find("\nQuestion: What is the access code of "), std::string::npos);
}

TEST(PasskeyTexts, RefuseWhatCannotBeMade) {
  EXPECT_THROW(texts_of(small(), 1000), Error);  // a text shorter than asked
  PasskeyConfig narrow = small();
  narrow.shortest = narrow.longest = 300;
  EXPECT_THROW(texts_of(narrow).check(5), Error);  // no room for the records
  EXPECT_NO_THROW(texts_of(small()).check(10));
  narrow.n_records = 21;
  EXPECT_THROW(texts_of(narrow), Error);
}

}  // namespace
}  // namespace longhaul
