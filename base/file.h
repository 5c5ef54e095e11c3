// Files: mapped for reading, read whole, appended durably, replaced in one move. Every failure
// throws kIo with the path and the system's reason. Those that block are each a FileWait
// (base/file_wait.h), but for reading what may be stopped and what is mapped already. Local.
#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace longhaul {

// Whether errno, after a file or folder was opened, says that the name is wrong, and not that the
// machine is in trouble.
bool is_about_the_name(int number);

// A regular file mapped read-only. The bytes stay valid while the object lives; moving keeps them
// in place. Opening never waits: what is no regular file (a FIFO, a device) is refused. A name that
// leads to no file that can be read throws kInvalidArgument, other failures kIo.
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

// From now on, a mapped file that is cut off while it is used ends the process with a message that
// names it, and this exit status; without it the kernel ends the process with SIGBUS and no word.
void explain_bus_errors(int exit_status);

// The whole file as a copy, so that what happens to the file later changes nothing; throws
// kInvalidArgument when it is larger than `max_bytes` (checked before anything is allocated).
// `stop_requested`, where given, is asked now and then: true throws kCancelled.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes,
                      const std::function<bool()>& stop_requested = {});

// All that comes from standard input, which may be a pipe, a terminal or a socket; as read_file
// otherwise. Throws kIo when reading fails: an end that is none must not be taken for one.
std::string read_standard_input(std::size_t max_bytes,
                                const std::function<bool()>& stop_requested = {});

// Appends to a regular file and can make what was appended survive a crash. One writer at a time:
// the file is locked (flock), and a second writer gets kFailedPrecondition with the path. Others
// may still remove, move or cut the file: that is noticed, and thrown as kIo.
class AppendFile {
 public:
  // Creates it when missing. Throws kInvalidArgument for a pipe, a device, a folder.
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;
  AppendFile(const AppendFile&) = delete;

  // All of it or throws; nothing is written when the file is not what it was.
  void append(std::string_view text);
  // Throws kIo, saying what happened, unless the path still leads to the file that was opened and
  // that has the size that it had after the last call.
  void require_unchanged() const;
  bool was_created() const { return was_created_; }  // by this object
  void sync();  // fdatasync; a failure is final, it is never retried
  void truncate(std::size_t size);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
  bool was_created_ = false;
};

// NAME.partial, where a file that must be whole or absent is written before it gets its name.
std::filesystem::path partial_path(const std::filesystem::path& path);
// Writes `text` to a file beside `path`, which then takes its place in one move and stays there
// after a crash. Where `path` is a link, that is the file that it leads to. Throws kInvalidArgument
// for a pipe, a device, a folder.
void replace_file(const std::filesystem::path& path, std::string_view text);
// Throws kInvalidArgument unless replace_file(path, ...) can write there: for what is written at
// the end of long work.
void require_replaceable(const std::filesystem::path& path);

}  // namespace longhaul
