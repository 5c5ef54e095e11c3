#include "model/tokenizer/token_classes.h"

#include <algorithm>
#include <string_view>

namespace longhaul {
namespace {

bool is_ascii_punctuation(char c) {
  const auto in = [&](char first, char last) { return first <= c && c <= last; };
  return in('!', '/') || in(':', '@') || in('[', '`') || in('{', '~');
}

bool is_punctuation(std::string_view text) {
  constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";
  bool any = false;
  for (const char c : text) {
    if (kWhiteSpace.find(c) != std::string_view::npos) continue;
    if (!is_ascii_punctuation(c)) return false;
    any = true;
  }
  return any;
}

}  // namespace

TokenClasses token_classes(const Tokenizer& tokenizer, std::int64_t n_ids) {
  TokenClasses classes(static_cast<std::size_t>(n_ids), TokenClass::kOther);
  const auto n = static_cast<std::int32_t>(std::min(n_ids, tokenizer.vocab_size()));
  for (std::int32_t id = 0; id < n; ++id) {
    TokenClass& of_id = classes[static_cast<std::size_t>(id)];
    if (tokenizer.is_special(id)) {
      of_id = TokenClass::kSpecial;
    } else if (tokenizer.has_text(id) && is_punctuation(tokenizer.token_bytes(id))) {
      of_id = TokenClass::kPunctuation;
    }
  }
  return classes;
}

}  // namespace longhaul
