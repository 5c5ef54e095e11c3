#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  try {
    parse_json(text, "file.json", limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    return error.what();
  }
  return "no error";
}

TEST(Json, WritesWhatItRead) {
  const std::string text = R"({"a":[1,-2.5,true,null,"x\n\"é"],"b":{"c":9007199254740993}})";
  EXPECT_EQ(to_text(parse_json(text, "t")), text);
}

TEST(Json, RefusesDuplicateKeys) {
  EXPECT_THAT(error_of(R"({"a":1,"b":{"k":1,"k":2}})"), HasSubstr("the key \"k\" appears twice"));
}

TEST(Json, RefusesDeepNestingWithoutUsingTheStack) {
  EXPECT_THAT(error_of(std::string(5'000'000, '[')), HasSubstr("nested deeper than 64 levels"));
}

TEST(Json, NamesSourceAndOffset) {
  EXPECT_THAT(error_of(R"({"a": 1,, "b": 2})"), testing::StartsWith("file.json: byte 9: "));
}

// A request file's error had two lines, that of the request in the file and "line 1" of its text.
TEST(Json, NamesLinesOfTextsOfSeveralLinesOnly) {
  EXPECT_EQ(error_of(R"({"a" 1})"),
            "file.json: byte 6: syntax error while parsing object separator - unexpected number "
            "literal; expected ':'");
  EXPECT_THAT(error_of("{\n  \"a\" 1}"),
              testing::StartsWith("file.json: byte 9 (line 2, column 7): syntax error while"));
}

TEST(Json, RefusesInvalidUtf8AndTrailingText) {
  EXPECT_THAT(error_of("\"\xff\""), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of("1 2"), HasSubstr("file.json: byte"));
  EXPECT_THAT(error_of(""), HasSubstr("file.json: byte"));
  EXPECT_THAT(error_of("[1e999]"), HasSubstr("file.json"));
}

// The library takes a zero byte for the end of the text: "{}", a zero byte and anything was read.
TEST(Json, RefusesTextAfterAZeroByte) {
  EXPECT_THAT(error_of(std::string("{}\0garbage", 10)), testing::StartsWith("file.json: byte 2: "));
  EXPECT_THAT(error_of(std::string("{}\0", 3)), HasSubstr("zero byte"));
  EXPECT_EQ(std::get<std::string>(parse_json(R"("\u0000")", "t").value()), std::string(1, '\0'));
}

TEST(JsonField, NamesTheWayToAValue) {
  const Json json = parse_json(R"({"rope_scaling":{"factor":"8"},"list":[1,2]})", "t");
  const JsonField field(json, "config.json");
  try {
    field.at("rope_scaling").at("factor").as_number();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "config.json: rope_scaling.factor: expected a number, found a string");
  }
  EXPECT_EQ(field.at("list").at(1).as_integer(0, 10), 2);
  EXPECT_THROW(field.at("list").at(2), Error);
  EXPECT_THROW(field.at("missing"), Error);
  EXPECT_FALSE(field.find("missing").has_value());
}

}  // namespace
}  // namespace longhaul
