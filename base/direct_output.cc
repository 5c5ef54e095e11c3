#include "base/direct_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/direct_file.h"
#include "base/error.h"

namespace longhaul {

DirectOutput::DirectOutput(std::filesystem::path path)
    : path_(std::move(path)), cached_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC)) {
  if (cached_ < 0) fail();
  direct_ = ::open(path_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
}

DirectOutput::~DirectOutput() {
  if (direct_ >= 0) ::close(direct_);
  if (cached_ >= 0) ::close(cached_);
}

void DirectOutput::fail() const {
  const int number = errno;
  const bool is_full = number == ENOSPC || number == EDQUOT || number == EFBIG;
  throw Error(
      ErrorCode::kIo,
      fmt::format("cannot write {}: {}{}", path_.string(), std::generic_category().message(number),
                  is_full ? "; free some space, or save to another folder" : ""));
}

void DirectOutput::reserve(std::int64_t n_bytes) const {
  if (n_bytes <= 0) return;
  while (::fallocate(cached_, 0, 0, n_bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return;
    fail();
  }
}

void DirectOutput::write(std::int64_t offset, std::span<const std::byte> bytes) {
  constexpr std::size_t kLittle = 4 * DirectFile::kSectorBytes;
  constexpr std::size_t kMostRest = std::size_t{16} << 20;
  constexpr std::int64_t kSyncBytes = std::int64_t{16} << 20;
  const std::size_t n_written = write_sectors(offset, bytes);
  offset += static_cast<std::int64_t>(n_written);
  bytes = bytes.subspan(n_written);
  if (direct_ >= 0 && bytes.size() <= kLittle) {
    const std::lock_guard lock(mutex_);
    if (!bytes.empty()) rest_.emplace_back(offset, std::vector(bytes.begin(), bytes.end()));
    n_rest_bytes_ += bytes.size();
    if (n_rest_bytes_ > kMostRest) write_rest();
    return;
  }
  write_cached(offset, bytes);
  // Now and then, what was written begins its way to the disk; nobody waits for that.
  const std::lock_guard lock(mutex_);
  n_unsynced_bytes_ += static_cast<std::int64_t>(bytes.size());
  if (n_unsynced_bytes_ < kSyncBytes) return;
  n_unsynced_bytes_ = 0;
  ::sync_file_range(cached_, 0, 0, SYNC_FILE_RANGE_WRITE);
}

void DirectOutput::finish() {
  const std::lock_guard lock(mutex_);
  write_rest();
}

void DirectOutput::write_rest() {
  for (const auto& [offset, bytes] : rest_) write_cached(offset, bytes);
  rest_.clear();
  n_rest_bytes_ = 0;
}

// How many of the first bytes were written; what is left goes the other way, which also says what
// is wrong with the file.
std::size_t DirectOutput::write_sectors(std::int64_t offset,
                                        std::span<const std::byte> bytes) const {
  constexpr std::size_t kSector = DirectFile::kSectorBytes;
  const bool is_aligned = static_cast<std::size_t>(offset) % kSector == 0 &&
                          reinterpret_cast<std::uintptr_t>(bytes.data()) % kSector == 0;
  if (direct_ < 0 || !is_aligned) return 0;
  const std::size_t n_whole = bytes.size() / kSector * kSector;
  std::size_t n_written = 0;
  while (n_written < n_whole) {
    const ssize_t n = ::pwrite(direct_, bytes.data() + n_written, n_whole - n_written,
                               offset + static_cast<std::int64_t>(n_written));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    n_written += static_cast<std::size_t>(n);
    if (n_written % kSector != 0) break;
  }
  return n_written;
}

void DirectOutput::write_cached(std::int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(cached_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail();
    offset += n;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

}  // namespace longhaul
