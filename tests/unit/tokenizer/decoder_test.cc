// Wanted values are those of the `tokenizers` library.
#include "model/tokenizer/decoder.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul::tokenization {
namespace {

std::string decode(std::string_view json_text, const std::vector<std::string>& tokens) {
  const Json json = parse_json(json_text, "test");
  const Decoder decoder = Decoder::from_json(JsonField(json, "test", "decoder"));
  DecoderRun run(decoder);
  std::string text;
  for (const std::string& token : tokens) run.push(token, text);
  run.finish(text);
  return text;
}

TEST(Decoder, MetaspaceDropsAllMarksOfTheFirstToken) {
  EXPECT_EQ(decode(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always"})",
                   {"▁▁Hey▁x", "▁▁you"}),
            "Heyx  you");
  EXPECT_EQ(decode(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})", {"▁a"}),
            " a");
}

TEST(Decoder, ByteFallbackShowsAMarkPerByteOfABadRun) {
  const char* kFallback = R"({"type":"ByteFallback"})";
  EXPECT_EQ(decode(kFallback, {"a", "<0xE4>", "<0xBD>", "<0xA0>", "b"}), "a你b");
  EXPECT_EQ(decode(kFallback, {"<0xE4>", "<0xBD>", "<0xA0>", "<0xFF>", "b"}), "����b");
  EXPECT_EQ(decode(kFallback, {"<0xC3>"}), "�");
}

TEST(Decoder, StripsTokensOrTheWholeText) {
  const char* kStrip = R"({"type":"Strip","content":" ","start":1,"stop":0})";
  EXPECT_EQ(decode(kStrip, {"  a", " b"}), " ab");
  const std::string fused =
      std::string(R"({"type":"Sequence","decoders":[{"type":"Fuse"},)") + kStrip + "]}";
  EXPECT_EQ(decode(fused, {"  a", " b"}), " a b");
  EXPECT_EQ(decode(fused, {" ", " b"}), " b");
  EXPECT_EQ(decode(R"({"type":"Sequence","decoders":[{"type":"Fuse"},
    {"type":"Strip","content":" ","start":0,"stop":2}]})",
                   {"a ", " b ", " ", " "}),
            "a  b ");
}

TEST(Decoder, ReplacesAcrossFusedTokens) {
  EXPECT_EQ(decode(R"({"type":"Sequence","decoders":[{"type":"Fuse"},
    {"type":"Replace","pattern":{"String":"ab"},"content":"-"}]})",
                   {"a", "ba", "a", "b", "a"}),
            "-a-a");
}

TEST(Decoder, ByteLevelTakesOtherTextAsItIs) {
  EXPECT_EQ(decode(R"({"type":"ByteLevel"})", {"Ġ", "ä", "½", "é x", "ł"}), " �é x�");
}

TEST(Decoder, JoinsWithSpacesWhenThereIsNone) {
  const Decoder decoder;
  DecoderRun run(decoder);
  std::string text;
  for (const char* token : {"a", "b"}) run.push(token, text);
  run.finish(text);
  EXPECT_EQ(text, "a b");
}

TEST(Decoder, RefusesByName) {
  for (const char* json :
       {R"({"type":"WordPiece","prefix":"##"})",
        R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]})"}) {
    try {
      decode(json, {});
      ADD_FAILURE() << json << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    }
  }
}

}  // namespace
}  // namespace longhaul::tokenization
