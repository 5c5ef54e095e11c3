// The files of a run's checkpoints: beside each document's saved caches a small file that says how
// far it was read, so that a run that goes on can say what it computes twice. Removes what is no
// longer needed. Thread-safe.
#pragma once
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>

#include "coordinator/engine.h"

namespace longhaul {

class Checkpoints {
 public:
  enum class Folder { kOfThisRun, kShared };  // whether others, too, may keep files there

  Checkpoints(std::filesystem::path folder, Folder whose)
      : folder_(std::move(folder)), whose_(whose) {}
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // For the engines; this object must outlive them.
  CheckpointHooks hooks();
  // No request is left: removes what nobody will need, such as a document's checkpoint under the
  // name that it had while other requests were left, too.
  void run_is_complete();
  // How many there were, what they took and take: "3 checkpoints in FOLDER (0.6 s lost, at most
  // 34.5 MiB)"; empty when there were none.
  std::string summary() const;

 private:
  void saved(const Checkpointed& checkpoint);
  void read(const std::string& document, std::int64_t n_read) const;
  void used(const std::string& document);
  void done(const std::string& document);
  std::int64_t bytes_in_folder() const;

  std::filesystem::path folder_;
  Folder whose_;
  mutable std::mutex mutex_;    // guards what follows
  std::set<std::string> used_;  // and not removed since
  std::int64_t n_saved_ = 0;
  double seconds_ = 0.0;
  std::int64_t most_bytes_ = 0;
};

// Tokens that a run had read of a document when it ended; 0 when nothing says so.
std::int64_t tokens_read_before(const std::filesystem::path& folder, const std::string& document);

}  // namespace longhaul
