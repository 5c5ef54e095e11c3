// The points of a share search that are done, on disk (share.json): what a search that was stopped
// goes on from, and what its curve consists of.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tools/identify/share_search.h"

namespace longhaul {

// Used by one thread.
class SharePoints {
 public:
  // Takes the points of the file when the same things made them, all that they depend on: the
  // ranking, texts, settings. With an empty path nothing is read or kept. Throws kCorruptData for a
  // file that is broken.
  SharePoints(std::filesystem::path path, Json made_by);

  // What was different when the file's points were made, one for each; they are not taken then.
  const std::vector<std::string>& differences() const { return differences_; }
  std::size_t size() const { return points_.size(); }
  std::optional<TriedShare> find(std::int64_t n_heads) const;
  // The file is replaced in one move, so that it is whole whenever the process ends.
  void add(const TriedShare& point);

 private:
  void read();
  std::filesystem::path path_;
  Json made_by_;
  std::vector<TriedShare> points_;
  std::vector<std::string> differences_;
};

}  // namespace longhaul
