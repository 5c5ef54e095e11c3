// The refusal of a valid part of tokenizer.json that Longhaul does not implement.
#pragma once
#include <string_view>

#include "base/json.h"

namespace longhaul::tokenization {

// Throws kUnsupported: "<source>: <path>: <reason>".
[[noreturn]] void refuse(const JsonField& field, std::string_view reason);

}  // namespace longhaul::tokenization
