// Replacement of invalid UTF-8: the examples of the Unicode Standard (15.0, section 3.9, tables 3-8
// to 3-11) and the settling of growing text.
#include "model/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "model/tokenizer/byte_alphabet.h"

namespace longhaul::tokenization {
namespace {

using namespace std::string_literals;

std::string marks(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += kReplacement;
  return text;
}

TEST(Utf8, ReplacesMaximalParts) {
  EXPECT_EQ(replace_invalid("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), marks(8) + "A");
  EXPECT_EQ(replace_invalid("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), marks(8) + "A");
  EXPECT_EQ(replace_invalid("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            marks(5).append("A").append(marks(2)).append("B"));
  EXPECT_EQ(replace_invalid("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), marks(4) + "A");
  EXPECT_EQ(replace_invalid("a\xF0\x9F\x98"), std::string("a").append(marks(1)));
  EXPECT_EQ(replace_invalid("a\0b"s), "a\0b"s);
}

TEST(Utf8, KeepsAnUnfinishedCharacterBack) {
  std::string bytes = "x\xF0\x9F";
  std::string out;
  settle(bytes, out);
  EXPECT_EQ(out, "x");
  EXPECT_EQ(bytes, "\xF0\x9F");
  bytes += "\x98\x80!";
  settle(bytes, out);
  EXPECT_EQ(out, "x\U0001F600!");
  EXPECT_EQ(bytes, "");
}

TEST(Utf8, ReadsEveryCharacter) {
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 61) {
    if (c >= 0xD800 && c < 0xE000) continue;
    // Written by the standard library.
    const std::string text = std::filesystem::path(std::u32string(1, c)).string();
    ASSERT_EQ(valid_prefix(text), text.size());
    ASSERT_EQ(char_at(text, 0), c);
    ASSERT_EQ(char_length(text[0]), text.size());
  }
}

TEST(ByteAlphabet, IsGpt2s) {
  EXPECT_EQ(bytes_of("Ġthe"), " the");
  EXPECT_EQ(bytes_of("ä½łċ"), "\xE4\xBD\xA0\x0B");
  EXPECT_EQ(bytes_of("Ń¡"), "\xAD\xA1");
  EXPECT_EQ(bytes_of("a b"), std::nullopt);
  EXPECT_EQ(bytes_of("中"), std::nullopt);
}

}  // namespace
}  // namespace longhaul::tokenization
