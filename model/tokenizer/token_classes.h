// The classes of a tokenizer's tokens (model/token_class.h).
#pragma once
#include <cstdint>

#include "model/token_class.h"
#include "model/tokenizer/tokenizer.h"

namespace longhaul {

// Of all ids below n_ids; those that the tokenizer does not have are kOther. Punctuation is a token
// whose text is, but for white space, one or more of the 32 characters of ASCII that C calls
// punctuation.
TokenClasses token_classes(const Tokenizer& tokenizer, std::int64_t n_ids);

}  // namespace longhaul
