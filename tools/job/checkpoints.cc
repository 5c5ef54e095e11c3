#include "tools/job/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/event_log.h"
#include "base/file_wait.h"
#include "base/log.h"
#include "base/sizes.h"
#include "worker/snapshot/cache_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

fs::path read_path(const fs::path& folder, const std::string& document) {
  return folder / (document + ".read");
}

// None where nothing can be removed, or where it is being written, as by another run with the same
// folder, which needs it.
std::optional<AppendFile> lock_if_possible(const fs::path& folder, const std::string& document) {
  try {
    return lock_saved(folder, document);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

CheckpointHooks Checkpoints::hooks() {
  const auto waited_for = [this](auto call) {
    return [this, call](const auto&... what) {
      const FileWait wait(FileUse::kWriting, folder_);
      (this->*call)(what...);
    };
  };
  return {.on_saved = waited_for(&Checkpoints::saved),
          .on_read = waited_for(&Checkpoints::read),
          .on_used = [this](const std::string& document) { used(document); },
          .on_done = waited_for(&Checkpoints::done)};
}

void Checkpoints::saved(const Checkpointed& checkpoint) {
  const std::int64_t n_bytes = bytes_in_folder();
  LONGHAUL_LOG(kInfo, kSnapshot, "checkpoint {}: {} of {} tokens, {:.1f} s, {} bytes in {}",
               checkpoint.document, checkpoint.n_tokens, checkpoint.n_document, checkpoint.seconds,
               n_bytes, folder_.string());
  log_event("checkpoint", {{"document", checkpoint.document},
                           {"tokens", checkpoint.n_tokens},
                           {"of_tokens", checkpoint.n_document},
                           {"seconds", checkpoint.seconds},
                           {"folder_bytes", n_bytes}});
  const std::lock_guard lock(mutex_);
  ++n_saved_;
  seconds_ += checkpoint.seconds;
  most_bytes_ = std::max(most_bytes_, n_bytes);
}

// Not synced, and no harm if it is lost: it only tells. Always as long, and so never seen half
// written by a run that comes after a kill.
void Checkpoints::read(const std::string& document, std::int64_t n_read) const {
  if (!fs::is_directory(folder_)) return;  // nothing was saved yet
  const fs::path path = read_path(folder_, document);
  std::fstream file(path, std::ios::in | std::ios::out);
  if (!file) file.open(path, std::ios::out);
  file << fmt::format("{:020}\n", n_read);
}

void Checkpoints::used(const std::string& document) {
  const std::lock_guard lock(mutex_);
  used_.insert(document);
}

void Checkpoints::run_is_complete() {
  std::set<std::string> documents;
  {
    const std::lock_guard lock(mutex_);
    documents = used_;
  }
  std::error_code ignored;
  if (whose_ == Folder::kOfThisRun) {
    for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
      const std::string file = entry.path().filename().string();
      documents.insert(file.substr(0, file.find('.')));
    }
  }
  for (const std::string& document : documents) done(document);
}

void Checkpoints::done(const std::string& document) {
  {
    const std::lock_guard lock(mutex_);
    used_.erase(document);
  }
  std::error_code ignored;
  if (!fs::is_directory(folder_, ignored)) return;
  const auto lock = lock_if_possible(folder_, document);
  if (!lock) return;
  remove_saved(folder_, document);
  fs::remove(read_path(folder_, document), ignored);
  fs::remove(lock->path(), ignored);
  fs::remove(folder_, ignored);  // if it is empty
}

std::int64_t Checkpoints::bytes_in_folder() const {
  std::int64_t n = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const auto size = entry.file_size(ignored);
    if (!ignored) n += static_cast<std::int64_t>(size);
  }
  return n;
}

std::string Checkpoints::summary() const {
  const std::lock_guard lock(mutex_);
  if (n_saved_ == 0) return {};
  return fmt::format("{} checkpoint{} in {} ({:.1f} s lost, at most {})", n_saved_,
                     n_saved_ == 1 ? "" : "s", folder_.string(), seconds_,
                     format_byte_size(most_bytes_));
}

std::int64_t tokens_read_before(const fs::path& folder, const std::string& document) {
  std::ifstream file(read_path(folder, document));
  std::int64_t n = 0;
  return file >> n ? n : 0;
}

}  // namespace longhaul
