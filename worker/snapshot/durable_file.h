// The last steps of writing a file that must be whole or absent: sync, rename, sync the folder.
#pragma once
#include <filesystem>
#include <string>

namespace longhaul {

// NAME.partial, where a file is written before it gets its name.
std::filesystem::path partial_path(const std::filesystem::path& path);

// The complete file at partial_path(path) becomes `path`, and stays so after a crash. Throws kIo.
void publish_file(const std::filesystem::path& path);

// SHA-256 of a file, 64 hexadecimal digits.
std::string file_sha256(const std::filesystem::path& path);

// Throws kIo unless the folder's file system has this many bytes free.
void require_space(const std::filesystem::path& folder, std::size_t n_bytes);

}  // namespace longhaul
