// What is wrong with a tokenizer.json is said with the file and the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

struct Broken {
  const char* name;
  const char* json;
  ErrorCode code;
  const char* message;
};

class BrokenTokenizer : public testing::TestWithParam<Broken> {};

TEST_P(BrokenTokenizer, IsRefusedWithFileAndField) {
  try {
    Tokenizer::from_json(GetParam().json, "folder/tokenizer.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), GetParam().code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("folder/tokenizer.json: "));
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenTokenizer,
    testing::Values(
        Broken{"no_json", "{", ErrorCode::kCorruptData, "byte"},
        Broken{"no_model", "{}", ErrorCode::kCorruptData, "model is missing"},
        Broken{"word_piece", R"({"model":{"type":"WordPiece"}})", ErrorCode::kUnsupported,
               "model.type: the model \"WordPiece\""},
        Broken{"unigram", R"({"model":{"type":"Unigram"}})", ErrorCode::kUnsupported,
               "\"Unigram\""},
        Broken{"dropout", R"({"model":{"dropout":0.1}})", ErrorCode::kUnsupported, "model.dropout"},
        Broken{"suffix", R"({"model":{"end_of_word_suffix":"</w>"}})", ErrorCode::kUnsupported,
               "model.end_of_word_suffix"},
        Broken{"vocab_list", R"({"model":{"vocab":[],"merges":[]}})", ErrorCode::kCorruptData,
               "model.vocab: expected an object"},
        Broken{"empty_vocab", R"({"model":{"vocab":{},"merges":[]}})", ErrorCode::kCorruptData,
               "model.vocab"},
        Broken{"negative_id", R"({"model":{"vocab":{"a":-1},"merges":[]}})",
               ErrorCode::kCorruptData, "model.vocab: the id of \"a\""},
        Broken{"same_id", R"({"model":{"vocab":{"a":0,"b":0},"merges":[]}})",
               ErrorCode::kCorruptData, "given twice"},
        Broken{"merge_form", R"({"model":{"vocab":{"a":0},"merges":["a"]}})",
               ErrorCode::kCorruptData, "model.merges[0]: expected two tokens"},
        Broken{"merge_pair", R"({"model":{"vocab":{"a":0},"merges":[["a","a","a"]]}})",
               ErrorCode::kCorruptData, "model.merges[0]"},
        Broken{"merge_unknown", R"({"model":{"vocab":{"a":0},"merges":["a a"]}})",
               ErrorCode::kCorruptData, "model.merges[0]: \"aa\" is not in the vocabulary"},
        Broken{
            "added_id",
            R"({"model":{"vocab":{"a":0},"merges":[]},"added_tokens":[{"id":5,"content":"<s>"}]})",
            ErrorCode::kCorruptData, "added_tokens[0].id: \"<s>\" has id 5"},
        Broken{"added_twice",
               R"({"model":{"vocab":{"a":0},"merges":[]},"added_tokens":[{"id":1,"content":"x"},
                  {"id":2,"content":"x"}]})",
               ErrorCode::kCorruptData, "added_tokens[1].content"},
        Broken{
            "pattern",
            R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated"}})",
            ErrorCode::kCorruptData, "pre_tokenizer.pattern.Regex: not a regular expression"},
        Broken{"behavior",
               R"({"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Odd"}})",
               ErrorCode::kCorruptData, "pre_tokenizer.behavior"},
        Broken{"bert", R"({"pre_tokenizer":{"type":"BertPreTokenizer"}})", ErrorCode::kUnsupported,
               "pre_tokenizer.type"},
        Broken{"after_byte_level",
               R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel",
                  "add_prefix_space":false},{"type":"Digits"}]}})",
               ErrorCode::kUnsupported, "after ByteLevel"},
        Broken{
            "post_processor",
            R"({"model":{"vocab":{"a":0},"merges":[]},"post_processor":{"type":"RobertaProcessing"}})",
            ErrorCode::kUnsupported, "post_processor.type"},
        Broken{
            "template_id",
            R"({"model":{"vocab":{"a":0},"merges":[]},"post_processor":{"type":"TemplateProcessing",
                  "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
                  "special_tokens":{"<s>":{"id":"<s>","ids":[7],"tokens":["<s>"]}}}})",
            ErrorCode::kCorruptData, "post_processor: the id 7"},
        Broken{
            "template_name",
            R"({"model":{"vocab":{"a":0},"merges":[]},"post_processor":{"type":"TemplateProcessing",
                  "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
                  "special_tokens":{}}})",
            ErrorCode::kCorruptData, "\"<s>\" is not among special_tokens"}),
    [](const auto& suite) { return std::string(suite.param.name); });

TEST(TokenizerFile, ErrorsNameThePath) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "tokenizer.json";
  EXPECT_THROW(Tokenizer::from_file(path), Error);
  std::ofstream(path) << R"({"model":{"type":"Unigram"}})";
  try {
    Tokenizer::from_file(path);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(path.string()));
  }
}

TEST(Tokenizer, AnUnknownTokenThatIsMissingIsSaidWhenNeeded) {
  const Tokenizer tokenizer = Tokenizer::from_json(
      R"({"model":{"vocab":{"a":0},"merges":[],"unk_token":"<unk>"}})", "tokenizer.json");
  EXPECT_EQ(tokenizer.encode("a"), std::vector<std::int32_t>{0});
  EXPECT_THROW(tokenizer.encode("ab"), Error);
}

TEST(Tokenizer, IdsOutsideTheVocabulary) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(R"({"model":{"vocab":{"a":0,"b":2},"merges":[]}})", "tokenizer.json");
  EXPECT_EQ(tokenizer.vocab_size(), 3);
  EXPECT_THROW(tokenizer.token_text(1), Error);
  EXPECT_THROW(tokenizer.token_text(-1), Error);
  EXPECT_THROW(tokenizer.token_bytes(3), Error);
  EXPECT_FALSE(tokenizer.is_special(77));
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{0, 1, 99, -5, 2}), "a b");
}

}  // namespace
}  // namespace longhaul
