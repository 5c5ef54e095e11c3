// Masks against the automaton itself: a token is allowed when its bytes lead somewhere.
#include "model/forms/mask_maker.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/forms/form.h"
#include "tests/support/random.h"
#include "tests/unit/forms/words.h"

namespace longhaul::test {
namespace {

using forms::Form;
using forms::FormCursor;
using forms::FormKind;
using forms::FormSource;
using forms::TokenTrie;

// Tokens as they are in real vocabularies: pieces of JSON, of characters, of words; some twice,
// some without bytes.
std::vector<std::string> tokens(Random& random) {
  const std::vector<std::string> pieces = {
      "\"", ",", ":",  "{",   "}",     "[", "]",   " ",     "\n",   "  ",  "true",
      "a",  "b", "ab", "1",   "-",     ".", "\\",  "\\u00", "é",    "€",   "null",
      "e",  "0", "}}", "\",", "\":\"", "x", "\"}", "\xe2",  "\x82", "\xac"};
  std::vector<std::string> all;
  for (int byte = 0; byte < 256; ++byte) all.emplace_back(1, static_cast<char>(byte));
  for (int i = 0; i < 600; ++i) {
    std::string token;
    for (std::int64_t n = random.integer(0, 5); n > 0; --n) {
      token += pieces[static_cast<std::size_t>(
          random.integer(0, static_cast<std::int64_t>(pieces.size()) - 1))];
    }
    all.push_back(token);
  }
  return all;
}

TEST(MaskMaker, AllowsTheTokensThatTheAutomatonAllows) {
  Random random(base_seed());
  const std::vector<std::string> vocabulary = tokens(random);
  const auto trie = std::make_shared<const TokenTrie>(vocabulary);
  const std::vector<FormSource> sources = {
      {FormKind::kJsonObject, ""},
      {FormKind::kJsonSchema,
       R"({"type": "array", "items": {"anyOf": [{"type": "string", "maxLength": 9},
          {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "string", "pattern": "^[a-b]*$"}},
           "additionalProperties": {"type": "string"}}, {"$ref": "#"}]}})"},
      {FormKind::kJsonSchema, R"({"type": "string", "minLength": 40, "maxLength": 5000})"},
      {FormKind::kRegex, "(?:[ab]{2,5}|.é)*x?"},
      {FormKind::kChoice, R"(["ab", "abab", "é€", "1-1"])"},
  };
  for (const FormSource& source : sources) {
    const auto form = std::make_shared<Form>(source, trie);
    for (int answer = 0; answer < 20; ++answer) {
      FormCursor cursor(form);
      for (int step = 0; step < 40 && !cursor.must_end(); ++step) {
        const auto mask = cursor.allowed();
        std::vector<std::int64_t> allowed;
        for (std::size_t id = 0; id < vocabulary.size(); ++id) {
          FormCursor after = cursor;
          const bool fits = !vocabulary[id].empty() && after.advance(vocabulary[id]);
          ASSERT_EQ(mask->contains(static_cast<std::int64_t>(id)), fits)
              << source.text << " step " << step << " token \"" << vocabulary[id] << '"';
          if (fits) allowed.push_back(static_cast<std::int64_t>(id));
        }
        ASSERT_FALSE(allowed.empty() && !cursor.may_end()) << source.text;
        if (allowed.empty()) break;
        const auto pick = allowed[static_cast<std::size_t>(
            random.integer(0, static_cast<std::int64_t>(allowed.size()) - 1))];
        ASSERT_TRUE(cursor.advance(vocabulary[static_cast<std::size_t>(pick)]));
      }
    }
  }
}

// The text that leads to a state, and not what the form was asked before, decides its mask.
TEST(MaskMaker, MasksDoNotDependOnWhatWasAskedBefore) {
  Random random(base_seed() + 1);
  const auto trie = std::make_shared<const TokenTrie>(tokens(random));
  const FormSource source{FormKind::kJsonObject, ""};
  const auto used = std::make_shared<Form>(source, trie);
  for (const char* text : {"{\"a", "{\"a\":[1,", "{", "{\"a\":[[\"x\"]", "{\"a\":{\"b\":\"\\"}) {
    FormCursor one(used);
    FormCursor fresh(std::make_shared<Form>(source, trie));
    ASSERT_TRUE(one.advance(text));
    ASSERT_TRUE(fresh.advance(text));
    EXPECT_TRUE(*one.allowed() == *fresh.allowed()) << text;
  }
}

// Each link of the chain took a frame of the stack.
TEST(MaskMaker, TakesLiteralsOfMoreBytesThanTheStackHasFrames) {
  const std::vector<std::string> vocabulary = {"a", "aa", "b"};
  const auto trie = std::make_shared<const TokenTrie>(vocabulary);
  const std::string word(140'000, 'a');
  FormCursor cursor(
      std::make_shared<Form>(FormSource{FormKind::kChoice, "[\"" + word + "\"]"}, trie));
  EXPECT_TRUE(cursor.allowed()->contains(1));
  ASSERT_TRUE(cursor.advance(word.substr(1)));
  EXPECT_TRUE(cursor.allowed()->contains(0));
  EXPECT_FALSE(cursor.allowed()->contains(1));
  EXPECT_FALSE(cursor.allowed()->contains(2));
}

TEST(MaskMaker, AFormThatAllowsEverythingAllowsAllTokensOfWholeCharacters) {
  std::vector<std::string> vocabulary = {"a", "bc", "é", "\n", "x\n", "\xe2\x82", "", "\xff"};
  const auto trie = std::make_shared<const TokenTrie>(vocabulary);
  FormCursor cursor(std::make_shared<Form>(FormSource{FormKind::kRegex, R"([\s\S]*)"}, trie));
  const auto mask = cursor.allowed();
  for (const int id : {0, 1, 2, 3, 4, 5}) EXPECT_TRUE(mask->contains(id)) << id;
  EXPECT_FALSE(mask->contains(6));
  EXPECT_FALSE(mask->contains(7));
}

}  // namespace
}  // namespace longhaul::test
