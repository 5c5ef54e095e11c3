#include "model/forms/json_schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/unit/forms/words.h"

namespace longhaul::test {
namespace {

using testing::HasSubstr;

struct Case {
  const char* schema;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

void expect(const Case& c) {
  const Words words = schema(c.schema);
  for (const char* text : c.good) EXPECT_TRUE(words.has(text)) << c.schema << " has " << text;
  for (const char* text : c.bad) EXPECT_FALSE(words.has(text)) << c.schema << " has not " << text;
}

TEST(JsonSchema, Objects) {
  expect({R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
              "c": {"type": "null"}}, "required": ["b"], "additionalProperties": false})",
          {R"({"b":""})", R"({"a": 1, "b": "x"})", R"({"b":"","c":null})",
           "{\n\t\"a\":\n1,\n\"b\": \"\"}"},
          {"{}", R"({"a":1})", R"({"b":"","a":1})", R"({"b":"","d":1})", R"({,"b":""})",
           R"({"b":"",})"}});
  expect({R"({"properties": {"a": true}})", {"{}", R"({"a": [1]})"}, {R"({"z":1})", "[]"}});
  expect({R"({"type": "object", "required": ["x"]})", {R"({"x": {}})"}, {"{}"}});
  expect({R"({"type": "object", "properties": {"a": {"const": 1}},
              "additionalProperties": {"type": "boolean"}})",
          {R"({"a":1, "b":true})", R"({"b":true})", R"({"ab":true, "":false})"},
          {R"({"a":true})", R"({"a":1,"a":true})", R"({"\u0061":true})", R"({"b":1})"}});
  expect({R"({"type": "object"})", {"{}", R"({"q": {"r": []}})"}, {"[]", "1"}});
}

TEST(JsonSchema, Lists) {
  expect({R"({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2})",
          {"[true]", "[false, true]"},
          {"[]", "[true,true,true]", "[1]", "[true,]"}});
  expect({R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": false})",
          {"[]", "[1]", "[1, 2]"},
          {"[2]", "[1,2,3]"}});
  expect({R"({"prefixItems": [{"const": 1}], "items": {"const": "x"}, "minItems": 2})",
          {R"([1, "x"])", R"([1, "x", "x"])"},
          {"[1]", R"(["x"])", "[]"}});
  expect({R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[1]"}});
}

TEST(JsonSchema, Strings) {
  expect({R"({"type": "string", "minLength": 2, "maxLength": 3})",
          {R"("ab")", R"("a\n\u00e9")", "\"\u20ac\U0001F600b\"", R"("\ud83d\ude00x")"},
          {R"("a")", R"("abcd")", R"("\ud83d\ude00")", R"("a)"}});
  expect({R"({"type": "string", "pattern": "^[a-c]+$"})", {R"("abc")"}, {R"("")", R"("abd")"}});
  expect({R"({"type": "string", "pattern": "b\"?c"})",
          {R"("xxbcxx")", R"("b\"c")"},
          {R"("cb")", R"("b"c")"}});
  expect({R"({"type": "string", "pattern": "^a", "maxLength": 3})",
          {R"("a")", R"("abc")", R"("a\n\"")"},
          {R"("ba")", R"("abcd")", R"("")"}});
  expect({R"({"type": "string", "format": "date"})",
          {R"("2024-02-28")", R"("1999-12-31")"},
          {R"("2024-02-30")", R"("2024-13-01")", R"("2024-4-1")"}});
  expect({R"({"type": "string", "format": "ipv4"})", {R"("192.168.0.1")"}, {R"("256.1.1.1")"}});
}

TEST(JsonSchema, ConstantsAndChoices) {
  expect({R"({"const": {"a": [1, "\"\n"], "b": null}})",
          {R"({"a":[1,"\"\n"],"b":null})", R"({"a": [1, "\"\n"], "b": null})"},
          {R"({"b":null,"a":[1,"\"\n"]})"}});
  expect({R"({"enum": ["a", 1, null, true]})", {R"("a")", "1", "null", "true"}, {"a", "2"}});
  expect({R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"}});
  expect({R"({"const": null})", {"null"}, {"0"}});
  expect({R"({"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "T", "default": null})",
          {"7", "null", "-12"},
          {"7.5", "\"\""}});
  expect({R"({"type": ["boolean", "null"]})", {"true", "null"}, {"1"}});
  expect({R"({"allOf": [{"type": "null"}]})", {"null"}, {"1"}});
  expect({"true", {"1", "{}", "[[]]", "\"x\"", "1.5e3"}, {"", "1 "}});
}

TEST(JsonSchema, References) {
  expect(
      {R"({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "array", "items": {"$ref": "#/$defs/n"}},
              "n": {"enum": [1, 2]}}})",
       {"[]", "[1, 2]"},
       {"[3]"}});
  expect({R"({"type": "object", "properties": {"v": {"type": "integer"},
              "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["v", "next"]})",
          {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
          {R"({"v":1})", R"({"v":1,"next":{}})"}});
}

TEST(JsonSchema, NumbersBetweenBounds) {
  const std::vector<std::optional<double>> bounds = {std::nullopt, -120, -10, -9.5, -1,  -0.25, 0,
                                                     0.05,         1,    7,   9.99, 100, 1234};
  std::vector<std::string> numbers;
  for (int i = -1300; i <= 1300; i += 1) numbers.push_back(fmt::format("{}", i));
  for (const double x :
       {-120.5, -10.01, -9.51, -9.5, -9.49,  -0.26, -0.25, -0.2500, -0.001, 0.001, 0.049,
        0.05,   0.0501, 0.5,   0.99, 1.0001, 6.999, 9.989, 9.99,    9.991,  100.1}) {
    numbers.push_back(fmt::format("{}", x));
    numbers.push_back(fmt::format("{:.6f}", x));
  }
  for (const auto& low : bounds) {
    for (const auto& high : bounds) {
      for (const bool excluded : {false, true}) {
        for (const bool is_integer : {false, true}) {
          std::string text = fmt::format(R"({{"type": "{}")", is_integer ? "integer" : "number");
          if (low)
            text += fmt::format(R"(, "{}": {})", excluded ? "exclusiveMinimum" : "minimum", *low);
          if (high)
            text += fmt::format(R"(, "{}": {})", excluded ? "exclusiveMaximum" : "maximum", *high);
          text += "}";
          const auto is_in = [&](double x) {
            return (!low || x > *low || (!excluded && x == *low)) &&
                   (!high || x < *high || (!excluded && x == *high));
          };
          std::optional<Words> words;
          try {
            words.emplace(schema(text));
          } catch (const Error& error) {
            ASSERT_THAT(error.what(), HasSubstr("no text")) << text;
          }
          for (const std::string& number : numbers) {
            const bool is_whole = number.find('.') == std::string::npos;
            const bool want = is_in(std::stod(number)) && (is_whole || !is_integer);
            ASSERT_EQ(words && words->has(number), want) << text << " " << number;
          }
        }
      }
    }
  }
}

TEST(JsonSchema, RefusalsNameTheKeywordAndTheWay) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"properties": {"a": {"not": {}}}})", "properties.a: the keyword \"not\""},
      {R"({"type": "object", "patternProperties": {}})", "\"patternProperties\""},
      {R"({"type": "array", "uniqueItems": true})", "\"uniqueItems\""},
      {R"({"type": "number", "multipleOf": 3})", "\"multipleOf\""},
      {R"({"if": {}})", "\"if\""},
      {R"({"requird": ["a"]})", "\"requird\""},
      {R"({"type": "strin"})", "type: there is no type \"strin\""},
      {R"({"items": {"type": "string", "format": "uri"}})", "items.format: the format \"uri\""},
      {R"x({"pattern": "a(?=b)"})x", "pattern: "},
      {R"({"$ref": "other.json"})", "only references into this schema"},
      {R"({"$ref": "#/$defs/x"})", "does not exist"},
      {R"({"$ref": "#/a", "type": "string", "a": 1})", "\"a\""},
      {R"({"$ref": "#", "minimum": 1})", "\"minimum\" is not supported beside \"$ref\""},
      {R"({"anyOf": [{}], "type": "string"})", "\"type\" is not supported beside \"anyOf\""},
      {R"({"allOf": [{}, {}]})", "\"allOf\" of several"},
      {R"({"type": "array", "items": [{}]})", "prefixItems"},
      {R"({"minimum": 1, "exclusiveMinimum": 0})", "beside its exclusive form"},
      {R"({"exclusiveMinimum": true})", "draft 4"},
      {R"({"minimum": 1e30})", "18 digits"},
      {R"({"minLength": -1})", "minLength"},
      {R"({"$ref": "#"})", "no text"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "no text"},
      {R"({"enum": []})", "no text"},
      {"false", "no text"},
      {"3", "expected a schema"},
      {"{", "JSON schema"},
  };
  for (const auto& [text, reason] : cases) {
    try {
      schema(text);
      ADD_FAILURE() << text << " was taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(reason)) << text;
    }
  }
}

TEST(JsonSchema, HostileSchemasEndInTime) {
  // Each definition names the next one twice: 2^40 lists if they were written out.
  std::string laughs = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 30; ++i) {
    laughs += fmt::format(
        R"("d{}": {{"prefixItems": [{{"$ref": "#/$defs/d{}"}}, {{"$ref": "#/$defs/d{}"}}], "minItems": 2}},)",
        i, i + 1, i + 1);
  }
  laughs += R"("d30": {"type": "null"}}})";
  EXPECT_TRUE(schema(laughs).cursor().advance("[[[["));
  std::string wide = R"({"anyOf": [)";
  for (int i = 0; i < 3000; ++i) {
    wide += fmt::format(R"({}{{"type": "string", "maxLength": {}}})", i == 0 ? "" : ",", i + 1);
  }
  EXPECT_TRUE(schema(wide + "]}").cursor().advance("\"abc"));
  EXPECT_THROW(schema(R"({"type": "string", "pattern": "(a|b)*a(a|b){60}", "maxLength": 9000})"),
               Error);
  EXPECT_THROW(schema(R"({"type": "array", "prefixItems": [)" + std::string(2'000'000, '1') + "]}"),
               Error);
}

}  // namespace
}  // namespace longhaul::test
