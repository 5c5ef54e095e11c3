// Sizes in bytes and counts as people write them, on the command line and in files: "64 GiB",
// "16G", "512 MB", "4096" bytes; "128K" tokens. A plain K, M, G or T means the binary unit, as
// memory is sold and as Slurm and llama.cpp count it; KB, MB, GB, TB are decimal.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longhaul {

// nullopt when `text` is no size, negative or larger than 2^62.
std::optional<std::int64_t> byte_size_from(std::string_view text);

// The same for what is counted, as a whole number: "128K", "8KB" (8000), "1.5M"; nullopt when
// `text` is none, ends in B alone, is negative or larger than 2^62. Exact up to 2^53.
std::optional<std::int64_t> count_from(std::string_view text);

// "1.50 GiB", "512 B"; binary units, three digits.
std::string format_byte_size(std::int64_t bytes);

}  // namespace longhaul
