#include "cluster/comm/shared_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

[[noreturn]] void fail_segment(const char* call, int error) {
  throw Error(ErrorCode::kIo, fmt::format("shared memory: {}: {}", call, std::strerror(error)));
}

std::string unguessable_name() {
  std::array<std::uint64_t, 2> random{};
  if (::getrandom(random.data(), sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    fail_segment("getrandom", errno);
  }
  return fmt::format("/longhaul.{:016x}{:016x}", random[0], random[1]);
}

// Closes it: a mapping stays without its file.
struct SegmentFile {
  int number;
  ~SegmentFile() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

SharedSegment::SharedSegment(std::size_t bytes) {
  const std::string name = unguessable_name();
  const SegmentFile file{::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600)};
  if (file.number < 0) fail_segment("shm_open", errno);
  try {
    // Where there is no room it is said now, not by a signal when the memory is touched.
    const int error = ::posix_fallocate(file.number, 0, static_cast<off_t>(bytes));
    if (error != 0) fail_segment("posix_fallocate", error);
    map(file.number, bytes);
  } catch (...) {
    ::shm_unlink(name.c_str());
    throw;
  }
  name_ = name;
}

std::optional<SharedSegment> SharedSegment::open(const std::string& name, std::size_t bytes) {
  const SegmentFile file{::shm_open(name.c_str(), O_RDWR, 0)};
  if (file.number < 0 && errno == ENOENT) return std::nullopt;
  if (file.number < 0) fail_segment("shm_open", errno);
  struct stat facts {};
  if (::fstat(file.number, &facts) != 0) fail_segment("fstat", errno);
  if (facts.st_uid != ::geteuid() || facts.st_size != static_cast<off_t>(bytes)) {
    fail_segment("somebody else's, or of another size", EPERM);
  }
  SharedSegment segment;
  segment.map(file.number, bytes);
  return segment;
}

void SharedSegment::map(int file, std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) fail_segment("mmap", errno);
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
}

SharedSegment::~SharedSegment() {
  unlink();
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      name_(std::exchange(other.name_, {})) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(name_, other.name_);
  return *this;
}

void SharedSegment::unlink() noexcept {
  if (!name_.empty()) ::shm_unlink(name_.c_str());
  name_.clear();
}

}  // namespace longhaul
