// What a Tokenizer and its StreamDecoders share.
#pragma once
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_parts.h"

namespace longhaul {

struct Tokenizer::Impl {
  tokenization::TokenizerParts parts;

  // nullptr outside the vocabulary.
  const tokenization::TokenizerParts::Token* token(std::int32_t id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= parts.tokens.size()) return nullptr;
    const auto& found = parts.tokens[static_cast<std::size_t>(id)];
    return found.exists ? &found : nullptr;
  }
  // Whether decoding shows this id: unknown ids and, on request, special ones are left out.
  bool is_text(std::int32_t id, bool skip_special) const {
    const auto* found = token(id);
    return found != nullptr && !(skip_special && found->special);
  }
};

}  // namespace longhaul
