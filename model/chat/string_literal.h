// Strings as a template writes them, with Python's escapes. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace longhaul::chat {

// Of the literal that `text` begins with, quotes included; 0 when it has no end.
std::size_t string_literal_length(std::string_view text);

// What stands between the quotes; an escape that Python does not have stays as it is.
std::string unescaped(std::string_view inside);

}  // namespace longhaul::chat
