#include "model/tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul::tokenization {
namespace {

std::string normalize(std::string_view json_text, std::string_view text) {
  const Json json = parse_json(json_text, "test");
  return Normalizer::from_json(JsonField(json, "test", "normalizer")).apply(text).text;
}

TEST(Normalizer, PrependsToWhatIsNotEmpty) {
  const char* kPrepend = R"({"type":"Prepend","prepend":"_"})";
  EXPECT_EQ(normalize(kPrepend, "a"), "_a");
  EXPECT_EQ(normalize(kPrepend, ""), "");
}

TEST(Normalizer, RunsASequence) {
  EXPECT_EQ(normalize(R"({"type":"Sequence","normalizers":[{"type":"Strip","strip_left":true,
    "strip_right":false},{"type":"Replace","pattern":{"Regex":"a+"},"content":"-"},
    {"type":"Replace","pattern":{"String":" "},"content":"▁"}]})",
                      "\u3000aab a "),
            "-b▁-▁");
}

TEST(UnicodeForm, ComposesAndReorders) {
  EXPECT_EQ(to_form(UnicodeForm::kNfc, "e\u0301"), "\u00E9");
  EXPECT_EQ(to_form(UnicodeForm::kNfc, "plain e\u0301 plain e\u0323\u0302"),
            "plain \u00E9 plain \u1EC7");
  EXPECT_EQ(to_form(UnicodeForm::kNfc, "\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(to_form(UnicodeForm::kNfc, "\u212B"), "\u00C5");
  EXPECT_EQ(to_form(UnicodeForm::kNfc, "\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(to_form(UnicodeForm::kNfkc, "\uFB01 \u2460"), "fi 1");
  EXPECT_EQ(to_form(UnicodeForm::kNfd, "\u00E9"), "e\u0301");
}

TEST(UnicodeForm, LeavesMarksThatAreNewerThanUnicode9) {
  // U+0898 (Unicode 14) has class 230 and would move before U+0315 (232).
  EXPECT_EQ(to_form(UnicodeForm::kNfc, "a\u0315\u0898b"), "a\u0315\u0898b");
}

TEST(Normalizer, RefusesByName) {
  try {
    normalize(R"({"type":"Sequence","normalizers":[{"type":"Lowercase"}]})", "a");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_STREQ(error.what(),
                 "test: normalizer.normalizers[0].type: the normalizer \"Lowercase\" is not "
                 "supported");
  }
}

TEST(Normalizer, RefusesReplacementsThatMultiplyAText) {
  const std::string doubled = R"({"type":"Replace","pattern":{"String":"l"},"content":"ll"})";
  std::string steps = doubled;
  for (int i = 1; i < 40; ++i) steps += "," + doubled;
  try {
    normalize(R"({"type":"Sequence","normalizers":[)" + steps + "]}", "l");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "test: normalizer.normalizers[6].content: with it a text can become 128 times as "
                 "long; supported are 64 times");
  }
}

}  // namespace
}  // namespace longhaul::tokenization
