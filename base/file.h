// Files: mapped for reading, read whole, appended durably, replaced in one move. Every failure
// throws kIo with the path and the system's reason. Local.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace longhaul {

// A regular file mapped read-only. The bytes stay valid while the object lives; moving keeps them
// in place.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The whole file; throws kInvalidArgument when it is larger than `max_bytes` (checked before
// anything is allocated).
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

// Appends to a file and can make what was appended survive a crash. One writer at a time: the file
// is locked (flock), and a second writer gets kFailedPrecondition with the path.
class AppendFile {
 public:
  explicit AppendFile(const std::filesystem::path& path);  // creates it when missing
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;
  AppendFile(const AppendFile&) = delete;

  void append(std::string_view text);  // all of it or throws
  void sync();                         // fdatasync; a failure is final, it is never retried
  void truncate(std::size_t size);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// NAME.partial, where a file that must be whole or absent is written before it gets its name.
std::filesystem::path partial_path(const std::filesystem::path& path);
// The complete file at partial_path(path) becomes `path`, in the place of what was there, and stays
// so after a crash: syncs it, renames it, syncs the folder.
void publish_file(const std::filesystem::path& path);
// Writes `text` to partial_path(path) and publishes it.
void replace_file(const std::filesystem::path& path, std::string_view text);

}  // namespace longhaul
