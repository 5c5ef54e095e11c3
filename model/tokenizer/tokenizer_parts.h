// The parts of a loaded tokenizer, as tokenizer.json lists them, and how a text goes through them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/decoder.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/post_processor.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer.h"

namespace longhaul::tokenization {

struct TokenizerParts {
  AddedTokenSet raw_added;  // searched for in the text as it comes
  Normalizer normalizer;
  AddedTokenSet normalized_added;  // searched for in the normalized text
  PreTokenizer pre_tokenizer;
  BpeModel model;
  PostProcessor post_processor;
  Decoder decoder;

  struct Token {
    std::string text;
    bool exists = false;
    bool special = false;
  };
  std::vector<Token> tokens;  // by id
  // What added tokens that are searched for in normalized text look like there: decoders expect
  // that form. (So does the library since 0.23; before, it gave them the text as written.)
  std::unordered_map<std::int32_t, std::string> normalized_texts;

  std::string_view decoder_text(std::int32_t id) const {
    const auto found = normalized_texts.find(id);
    return found != normalized_texts.end() ? std::string_view(found->second)
                                           : tokens[static_cast<std::size_t>(id)].text;
  }
};

// Throws as Tokenizer::from_json does.
TokenizerParts parse_tokenizer(std::string_view text, std::string_view source);

struct EncodePlan {
  int n_threads = 1;                                 // 0 = all cores
  std::size_t chunk_bytes = std::size_t{256} << 10;  // of text, per task; ids do not depend on it
};

// The ids of `text` without what the post-processor adds.
std::vector<std::int32_t> encode_text(const TokenizerParts& parts, std::string_view text,
                                      const SpecialTokens& special, const EncodePlan& plan);

}  // namespace longhaul::tokenization
