// Bad tokenizer.json files: small tokenizers of both families, and those of the shared models.
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/fuzz/bad_inputs.h"
#include "tests/fuzz/bad_json.h"
#include "tests/fuzz/read_inputs.h"
#include "tests/support/paths.h"

namespace longhaul::test {
namespace {

void add_bad_tokenizers(std::string_view good, std::vector<BadInput>& bad) {
  add_bad_json_text(good, bad);
  add_bad_json_fields(good,
                      {{"model", "o"},
                       {"model/type", "s0"},
                       {"model/vocab", "o"},
                       {"model/vocab/a", "i0"},
                       {"model/merges", "l"},
                       {"model/merges/0", "sl"},
                       {"model/merges/0/1", "s"},
                       {"model/unk_token", "s0"},
                       {"model/byte_fallback", "b0"},
                       {"added_tokens", "l0"},
                       {"added_tokens/0", "o"},
                       {"added_tokens/0/id", "i"},
                       {"added_tokens/0/content", "s"},
                       {"added_tokens/0/special", "b0"},
                       {"normalizer", "o0"},
                       {"normalizer/type", "s"},
                       {"normalizer/normalizers", "l"},
                       {"normalizer/normalizers/1/pattern", "o"},
                       {"normalizer/normalizers/1/content", "s"},
                       {"pre_tokenizer", "o0"},
                       {"pre_tokenizer/type", "s"},
                       {"pre_tokenizer/pretokenizers", "l"},
                       {"pre_tokenizer/pretokenizers/0/pattern", "o"},
                       {"pre_tokenizer/pretokenizers/0/pattern/Regex", "s"},
                       {"pre_tokenizer/pretokenizers/0/behavior", "s"},
                       {"decoder", "o0"},
                       {"decoder/type", "s"},
                       {"decoder/decoders", "l"},
                       {"post_processor", "o0"},
                       {"post_processor/type", "s"},
                       {"post_processor/single", "l"}},
                      bad);
}

TEST(BadInputs, OfTokenizersAreRefusedByName) {
  Reader reader{
      .name = "tokenizer.json", .source = std::string(kInputName), .parse = read_tokenizer};
  for (const char* relative :
       {"tests/fuzz/corpus/tokenizer/byte_level.json", "tests/fuzz/corpus/tokenizer/pieces.json"}) {
    reader.good.push_back(read_file(source_path(relative), std::size_t{1} << 20));
  }
  for (const char* relative :
       {"models/needle/tokenizer.json", "models/stories260K/tokenizer.json"}) {
    const auto path = shared_path(relative);
    if (std::filesystem::exists(path)) reader.good.push_back(read_file(path, std::size_t{1} << 20));
  }
  reader.targeted = add_bad_tokenizers;
  EXPECT_GE(check_reader(reader).refused, 500U);
}

}  // namespace
}  // namespace longhaul::test
