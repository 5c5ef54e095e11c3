// Fills a file that is there, by any number of threads, in large pieces whose places are known.
// Whole sectors go from the writer's memory to the disk (O_DIRECT), without a copy and without
// memory for the system's page cache; the rest, and everything where the file system has no other
// way, goes by way of it. Every failure throws kIo with path, reason and remedy. Local.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace longhaul {

class DirectOutput {
 public:
  explicit DirectOutput(std::filesystem::path path);
  ~DirectOutput();
  DirectOutput(const DirectOutput&) = delete;
  DirectOutput& operator=(const DirectOutput&) = delete;

  // Takes the disk's space for bytes [0, n_bytes), where the file system can, so that threads need
  // not wait for one another to get some. The file has at least this size then, or the one it had.
  void reserve(std::int64_t n_bytes) const;
  // Any thread, of bytes that no other call writes.
  void write(std::int64_t offset, std::span<const std::byte> bytes);
  // After all of them: what is left is written. All is on the disk when the file is then synced.
  void finish();

 private:
  void write_cached(std::int64_t offset, std::span<const std::byte> bytes) const;
  std::size_t write_sectors(std::int64_t offset, std::span<const std::byte> bytes) const;
  void write_rest();  // the caller holds mutex_
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  int cached_ = -1;
  int direct_ = -1;   // -1: there is no such way
  std::mutex mutex_;  // guards what follows
  // Less than a sector each, or little more. A write by way of the page cache waits until the disk
  // has taken what others write to the file, and they wait for it: so these go together.
  std::vector<std::pair<std::int64_t, std::vector<std::byte>>> rest_;
  std::size_t n_rest_bytes_ = 0;
  std::int64_t n_unsynced_bytes_ = 0;  // written by way of the page cache since that was told
};

}  // namespace longhaul
