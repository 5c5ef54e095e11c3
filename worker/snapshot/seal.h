// A seal over a whole file: its first 512 bytes say the SHA-256 of the rest, so that a flipped bit
// is found before anything else looks at the file (HDF5 keeps no checksums of names and
// attributes). The 512 bytes are an HDF5 user block: readers pass over them. Needs no HDF5.
#pragma once
#include <cstddef>
#include <filesystem>

namespace longhaul {

inline constexpr std::size_t kSealBytes = 512;

// Writes the seal of what stands behind the first kSealBytes. Throws kIo.
void seal_file(const std::filesystem::path& path);

// Throws kCorruptData naming the file when it is not what was sealed; false when it has no seal.
bool check_seal(const std::filesystem::path& path);

}  // namespace longhaul
