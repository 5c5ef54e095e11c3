// What kind of token an id is, to methods that keep some kinds whatever attention they get. Plain
// values, made from a tokenizer (tokenizer/token_classes.h).
#pragma once
#include <cstdint>
#include <vector>

namespace longhaul {

enum class TokenClass : std::uint8_t {
  kOther,
  kSpecial,      // begins and ends texts and turns: <s>, <|eot_id|>
  kPunctuation,  // of nothing but ASCII punctuation, white space aside
};

using TokenClasses = std::vector<TokenClass>;  // [vocab_size]

}  // namespace longhaul
