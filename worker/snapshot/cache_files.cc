// The part of cache_files.h that needs no HDF5.
#include "worker/snapshot/cache_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/sync_file.h"

namespace longhaul {

namespace fs = std::filesystem;

fs::path SavedSequence::part_path(std::int64_t part) const {
  if (generation == 0) return folder / fmt::format("{}.part-{:04}.h5", name, part);
  return folder / fmt::format("{}.part-{:04}.g{}.h5", name, part, generation);
}

std::vector<BlockRun> HeadPiece::runs(std::span<const KvBlockRef> of_blocks) const {
  return is_chosen ? listed_runs(of_blocks, positions) : block_runs(of_blocks, without);
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

void sync_part_file(const SavedSequence& saved, std::int64_t part) {
  const fs::path path = saved.part_path(part);
  sync_file(path);
  sync_folder_of(path);
}

void publish_master_file(const SavedSequence& saved, std::span<const WrittenFile> parts) {
  try {
    rename_partial(saved.master_path());
  } catch (...) {
    drop_master_file(saved, parts);
    throw;
  }
  sync_folder_of(saved.master_path());
}

void drop_master_file(const SavedSequence& saved, std::span<const WrittenFile> parts) {
  std::error_code ignored;
  fs::remove(partial_path(saved.master_path()), ignored);
  for (const WrittenFile& part : parts) fs::remove(saved.folder / part.name, ignored);
}

std::optional<AppendFile> lock_saved(const fs::path& folder, const std::string& name) {
  const fs::path path = folder / (name + ".lock");
  // A lock's name need not outlast a crash: for a file that is there, no folder is synced.
  std::ofstream(path, std::ios::app).close();
  try {
    return AppendFile(path);
  } catch (const Error& busy) {
    if (busy.code() != ErrorCode::kFailedPrecondition) throw;
    return std::nullopt;
  }
}

void remove_saved(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  // The master first: while it is there, so are its parts.
  fs::remove(folder / (name + ".h5"), ignored);
  fs::remove(folder / (name + ".h5.partial"), ignored);
  remove_parts_but(folder, name, {});
}

void remove_parts_but(const fs::path& folder, const std::string& name,
                      std::span<const WrittenFile> used) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().filename().string();
    const bool is_used = std::any_of(used.begin(), used.end(),
                                     [&](const WrittenFile& part) { return part.name == file; });
    if (file.starts_with(name + ".part-") && !is_used) found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove(path, ignored);
}

}  // namespace longhaul
