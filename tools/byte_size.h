// Sizes as people write them: "8G", "512M", "1.5GiB", "1000000". K, M, G, T are powers of 1024.
#pragma once
#include <cstddef>
#include <string_view>

namespace longhaul {

// Throws kInvalidArgument showing the text and what is accepted.
std::size_t parse_byte_size(std::string_view text);

}  // namespace longhaul
