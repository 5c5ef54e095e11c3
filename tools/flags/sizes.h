// Sizes in bytes as flags have them: --kv-limit 8G.
#pragma once
#include <cstddef>
#include <string_view>

namespace longhaul {

// What byte_size_from reads. Throws kInvalidArgument showing flag, text and what is accepted.
std::size_t parse_byte_size(std::string_view text, std::string_view flag);

}  // namespace longhaul
