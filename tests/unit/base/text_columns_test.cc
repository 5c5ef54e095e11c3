#include "base/text_columns.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(TextColumns, AreCharacters) {
  EXPECT_EQ(n_columns("1 ± 2"), 5U);
  EXPECT_EQ(first_columns("±±±", 2), "±±");
  EXPECT_EQ(first_columns("ab", 9), "ab");
  EXPECT_EQ(first_columns("ab", 0), "");
}

TEST(WrappedText, IsCutBetweenWordsAndIndented) {
  EXPECT_EQ(wrapped_text("one two three four", {.width = 10, .indent = 2}),
            "one two\n  three\n  four");
  EXPECT_EQ(wrapped_text("one two three four", {.width = 10, .indent = 2, .begin = 6}),
            "one\n  two\n  three\n  four");
  EXPECT_EQ(wrapped_text("±± ±±", {.width = 5}), "±± ±±") << "columns, not bytes";
  EXPECT_EQ(wrapped_text("as it is", {.width = kAnyWidth}), "as it is");
  EXPECT_EQ(wrapped_text("", {}), "");
}

TEST(WrappedText, KeepsLineBreaksAndLinesThatFit) {
  EXPECT_EQ(wrapped_text("a    b\nc d e f", {.width = 6, .indent = 1, .begin = 0}),
            "a    b\n c d e\n f");
}

TEST(WrappedText, CutsLongWordsBehindCommas) {
  EXPECT_EQ(wrapped_text("snapkv:capacity=1,window=2,pool=max", {.width = 20, .indent = 1}),
            "snapkv:capacity=1,\n window=2,pool=max");
  EXPECT_EQ(wrapped_text("no_comma_in_it at all", {.width = 8}), "no_comma_in_it\nat all");
}

}  // namespace
}  // namespace longhaul
