#include "base/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/error.h"

namespace longhaul {

DirectFile::DirectFile(const std::filesystem::path& path)
    : file_(path), direct_(::open(path.c_str(), O_RDONLY | O_DIRECT | O_NONBLOCK | O_CLOEXEC)) {
  struct stat status {};
  if (direct_ < 0 || ::fstat(direct_, &status) != 0 || status.st_size <= 0) return;
  const auto n_bytes = static_cast<std::size_t>(status.st_size);
  void* pages = ::mmap(nullptr, n_bytes, PROT_READ, MAP_SHARED, direct_, 0);
  if (pages == MAP_FAILED) return;
  pages_ = static_cast<std::byte*>(pages);
  pages_bytes_ = n_bytes;
}

DirectFile::~DirectFile() {
  if (pages_ != nullptr) ::munmap(pages_, pages_bytes_);
  if (direct_ >= 0) ::close(direct_);
}

std::span<const std::byte> DirectFile::read(std::int64_t offset, std::size_t n_bytes,
                                            std::span<std::byte> room) const {
  require(room.size() >= room_for(n_bytes), "DirectFile: the room is too small");
  const std::size_t skipped = static_cast<std::size_t>(offset) % kSectorBytes;
  if (direct_ >= 0 && !is_cached(offset, n_bytes)) {
    const std::size_t n_wanted = skipped + n_bytes;
    const std::size_t n_sectors = (n_wanted + kSectorBytes - 1) / kSectorBytes;
    const std::int64_t begin = offset - static_cast<std::int64_t>(skipped);
    if (read_direct(begin, n_wanted, room.first(n_sectors * kSectorBytes)))
      return room.subspan(skipped, n_bytes);
  }
  file_.read(offset, room.first(n_bytes));
  return room.first(n_bytes);
}

// Half of the pages: reading those from memory is then worth reading the others by way of it.
bool DirectFile::is_cached(std::int64_t offset, std::size_t n_bytes) const {
  static const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (pages_ == nullptr) return true;
  const std::size_t begin = static_cast<std::size_t>(offset) / kPage * kPage;
  const std::size_t end = std::min(static_cast<std::size_t>(offset) + n_bytes, pages_bytes_);
  if (begin >= end) return true;
  std::vector<unsigned char> are_cached((end - begin + kPage - 1) / kPage);
  if (::mincore(pages_ + begin, end - begin, are_cached.data()) != 0) return true;
  const auto n_cached = std::count_if(are_cached.begin(), are_cached.end(),
                                      [](unsigned char page) { return page & 1; });
  return 2 * static_cast<std::size_t>(n_cached) >= are_cached.size();
}

// False where it does not work or the file ends before `n_wanted` bytes: the other way then says
// what is wrong.
bool DirectFile::read_direct(std::int64_t begin, std::size_t n_wanted,
                             std::span<std::byte> to) const {
  std::size_t n_read = 0;
  while (n_read < n_wanted) {
    const ssize_t n = ::pread(direct_, to.data() + n_read, to.size() - n_read,
                              begin + static_cast<std::int64_t>(n_read));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    n_read += static_cast<std::size_t>(n);
    // Not whole sectors: the end of the file, or of what this way can do.
    if (n_read % kSectorBytes != 0 && n_read < n_wanted) return false;
  }
  return true;
}

}  // namespace longhaul
