// The part of cache_files.h that needs no HDF5.
#include "worker/snapshot/cache_files.h"

#include <fmt/format.h>

#include "base/error.h"

namespace longhaul {

namespace fs = std::filesystem;

fs::path SavedSequence::part_path(std::int64_t part) const {
  return folder / fmt::format("{}.part-{:04}.h5", name, part);
}

std::string_view role_name(HeadKind kind) {
  switch (kind) {
    case HeadKind::kRetrieval:
      return "retrieval";
    case HeadKind::kStreaming:
      return "streaming";
    case HeadKind::kModelWindow:
      return "window";
  }
  throw Error(ErrorCode::kInternal, "a role without a name");
}

void remove_saved(const SavedSequence& saved) {
  std::error_code ignored;
  // The master first: while it is there, so are its parts.
  fs::remove(saved.master_path(), ignored);
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(saved.folder, ignored)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with(saved.name + ".part-") || file == saved.name + ".h5.partial")
      found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove(path, ignored);
}

}  // namespace longhaul
