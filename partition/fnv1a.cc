#include "partition/fnv1a.h"

#include <fmt/format.h>

#include <cstdint>

namespace longhaul {

std::string fnv1a_hex(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211ULL;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace longhaul
