#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

// Closes a descriptor at the end of a scope.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags, mode_t mode = 0)
      : value_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
    if (value_ < 0) throw_errno("cannot open", path.string());
  }
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

std::size_t regular_file_size(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_errno("cannot stat", path.string());
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kIo,
                fmt::format("cannot read {}: it is not a regular file", path.string()));
  }
  return static_cast<std::size_t>(status.st_size);
}

void write_all(int descriptor, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw_errno("cannot write", path.string());
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void sync_folder_of(const std::filesystem::path& path) {
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const Descriptor descriptor(folder, O_RDONLY | O_DIRECTORY);
  if (::fsync(descriptor.get()) != 0) throw_errno("cannot sync folder", folder.string());
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Descriptor descriptor(path, O_RDONLY);
  size_ = regular_file_size(descriptor.get(), path);
  if (size_ == 0) return;  // mmap refuses empty files; an empty span says the same
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (address == MAP_FAILED) throw_errno("cannot map", path.string());
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const MappedFile file(path);
  if (file.bytes().size() > max_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} bytes; at most {} are accepted here", path.string(),
                            file.bytes().size(), max_bytes));
  }
  return std::string(file.text());
}

AppendFile::AppendFile(const std::filesystem::path& path) : path_(path) {
  const bool existed = std::filesystem::exists(path);
  Descriptor descriptor(path, O_RDWR | O_CREAT | O_APPEND, 0644);
  if (::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      throw Error(
          ErrorCode::kFailedPrecondition,
          fmt::format(
              "{} is being written by another process; wait for it or choose another output",
              path.string()));
    }
    // File systems without locks (some Lustre and NFS mounts) still work; two writers are then the
    // user's to avoid.
  }
  if (!existed) sync_folder_of(path);
  descriptor_ = descriptor.release();
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

void AppendFile::append(std::string_view text) { write_all(descriptor_, text, path_); }

void AppendFile::sync() {
  if (::fdatasync(descriptor_) != 0) throw_errno("cannot sync", path_.string());
}

void AppendFile::truncate(std::size_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0)
    throw_errno("cannot truncate", path_.string());
}

std::filesystem::path partial_path(const std::filesystem::path& path) {
  return path.string() + ".partial";
}

void publish_file(const std::filesystem::path& path) {
  const std::filesystem::path partial = partial_path(path);
  {
    const Descriptor descriptor(partial, O_RDONLY);
    if (::fsync(descriptor.get()) != 0) throw_errno("cannot sync", partial.string());
  }
  if (::rename(partial.c_str(), path.c_str()) != 0) throw_errno("cannot rename to", path.string());
  sync_folder_of(path);
}

void replace_file(const std::filesystem::path& path, std::string_view text) {
  {
    const std::filesystem::path partial = partial_path(path);
    const Descriptor descriptor(partial, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write_all(descriptor.get(), text, partial);
  }
  publish_file(path);
}

}  // namespace longhaul
