// How much of the host's memory this process may still take.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace longhaul {

// What the kernel calls available, or what control groups leave to this process where that is less.
// Reads /proc and /sys.
std::int64_t free_memory_bytes();

// MemAvailable of /proc/meminfo in bytes; nullopt when the text does not say. Pure.
std::optional<std::int64_t> available_bytes_of(std::string_view meminfo);

}  // namespace longhaul
