// A file that is read once, by any number of threads, in large pieces. What the system's page cache
// does not hold goes from the disk to the reader's memory (O_DIRECT): no copy, and no memory for
// pages that nobody asks for again. Every failure throws kIo with the path and the system's reason.
// Local.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/disk_file.h"

namespace longhaul {

class DirectFile {
 public:
  // Disks read whole sectors into memory that begins as they do; no disk's are longer.
  static constexpr std::size_t kSectorBytes = 4096;
  // What reading so many bytes needs: up to a sector more on either side.
  static constexpr std::size_t room_for(std::size_t n_bytes) { return n_bytes + 2 * kSectorBytes; }

  explicit DirectFile(const std::filesystem::path& path);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Bytes [offset, offset + n_bytes), somewhere in `room`, which has room_for(n_bytes) and begins
  // at a multiple of kSectorBytes; in huge pages (host_memory.h) a disk takes fewer requests.
  // Throws kIo where the file ends before. File systems without O_DIRECT read as any file is read.
  std::span<const std::byte> read(std::int64_t offset, std::size_t n_bytes,
                                  std::span<std::byte> room) const;

 private:
  bool is_cached(std::int64_t offset, std::size_t n_bytes) const;
  bool read_direct(std::int64_t begin, std::size_t n_wanted, std::span<std::byte> to) const;

  PositionedFile file_;
  int direct_ = -1;             // -1: there is no other way than the page cache
  std::byte* pages_ = nullptr;  // of the file, mapped to ask which are cached; null: all may be
  std::size_t pages_bytes_ = 0;
};

}  // namespace longhaul
