// Regular expressions of the `tokenizers` library are Oniguruma's Ruby syntax. This rewrites them
// for PCRE2 so that they match the same text, and refuses by name what it cannot rewrite exactly:
//   \s \w \d \h \p{..}   written out (PCRE2's \s has U+180E, its \w lacks marks; and characters
//                        that are newer than the library's Unicode tables are added)
//   (?m:..)              is "dot matches newline" in Ruby; `^` and `$` always match at lines
//   \uHHHH, {,n}         other spellings
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

namespace longhaul::tokenization {

// Throws kUnsupported naming `field` and the construct, kCorruptData for what is no expression.
std::string to_pcre2(std::string_view expression, const JsonField& field);

}  // namespace longhaul::tokenization
