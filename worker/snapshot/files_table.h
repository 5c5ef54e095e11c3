// The master's data set /files: name, size and SHA-256 of each part. Private to this folder.
#pragma once
#include <span>
#include <vector>

#include "worker/snapshot/cache_files.h"
#include "worker/snapshot/hdf5_file.h"

namespace longhaul {

void write_files_table(const Hdf5File& file, std::span<const WrittenFile> parts);
std::vector<WrittenFile> read_files_table(const Hdf5File& file);

}  // namespace longhaul
