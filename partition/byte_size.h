// Byte sizes as people write them: "64 GiB", "16G", "512 MB", "4096". A plain K, M, G or T means
// the binary unit, as memory is sold and as Slurm counts it; KB, MB, GB, TB are decimal.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longhaul {

// nullopt when `text` is no size, negative or larger than 2^62.
std::optional<std::int64_t> byte_size_from(std::string_view text);

// "1.50 GiB", "512 B"; binary units, three digits.
std::string format_byte_size(std::int64_t bytes);

}  // namespace longhaul
