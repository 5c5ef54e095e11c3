// Says before anything is written that a folder is too full.
#pragma once
#include <cstddef>
#include <filesystem>

namespace longhaul {

// Throws kIo unless the folder's file system has this many bytes free.
void require_space(const std::filesystem::path& folder, std::size_t n_bytes);

}  // namespace longhaul
