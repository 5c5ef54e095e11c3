// Damage to files, as a disk does it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>

namespace longhaul::test {

// Turns bit `bit` (0 to 7) of byte `at` round; a second time mends it.
inline void flip_bit(const std::filesystem::path& path, std::int64_t at, int bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ (1 << bit)));
}

}  // namespace longhaul::test
