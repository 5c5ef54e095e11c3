// Which saved caches a run's documents begin with: found by what is in them, never by their file's
// name. Looks at masters; the ranks check and read the rest (worker/snapshot).
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/kv_type.h"
#include "coordinator/save_caches.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {

// What caches must agree with to be used in a run.
struct WantedCaches {
  std::string identity;  // JSON, as SaveCaches::identity
  KvType k_type = KvType::kF32;
  KvType v_type = KvType::kF32;
  std::int64_t block_size = 64;
  double rope_theta = 0.0;
  bool converts = false;  // other cache types are converted
  // Methods choose tokens when a document is whole: caches cut then are of that document alone, and
  // those that were not are none of a whole one.
  bool cuts_documents = false;
};

// How the caches of a header differ from what is wanted, a line each; empty: they can be used.
// Pure.
std::vector<std::string> differences_of(const SavedHeader& header, const WantedCaches& wanted);

// Where saved caches are looked for.
struct SavedFolder {
  std::filesystem::path path;
  // The user named it to be read from: files that cannot be read and caches of the document that
  // cannot be used end the run. Else they are left alone.
  bool must_work = false;
  bool has_checkpoints = false;  // which say how far their documents were read
};

// Thread-safe. Checks a master once, and again when its file changed.
class SavedDocuments {
 public:
  SavedDocuments(std::vector<SavedFolder> folders, WantedCaches wanted)
      : folders_(std::move(folders)), wanted_(std::move(wanted)) {}

  // The saved caches that `document` begins with and that can be used, the longest first; those
  // that need no conversion first among equals. Throws kFailedPrecondition with the differences
  // when a folder that must work has the document's caches, or those of its beginning, but none
  // that can be used; kCorruptData for a file there that cannot be read, or that folder itself.
  std::vector<SavedStart> starts_of(std::span<const std::int32_t> document);

 private:
  struct Known {
    std::filesystem::file_time_type written;
    std::optional<SavedHeader> header;  // none: cannot be read
  };
  std::optional<SavedHeader> header_of(const std::filesystem::path& master, bool must_work);

  std::vector<SavedFolder> folders_;
  WantedCaches wanted_;
  std::mutex mutex_;  // guards what follows
  std::map<std::filesystem::path, Known> known_;
};

}  // namespace longhaul
