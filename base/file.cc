#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file_wait.h"
#include "base/sync_file.h"

namespace longhaul {

bool is_about_the_name(int number) {
  switch (number) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case EACCES:
    case EPERM:
    case ENAMETOOLONG:
    case ENXIO:
      return true;
    default:
      return false;
  }
}

namespace {

[[noreturn]] void throw_cannot_open(const std::filesystem::path& path) {
  const int number = errno;
  std::string text =
      fmt::format("cannot open {}: {}", path.string(), std::generic_category().message(number));
  if (number == EMFILE || number == ENFILE) text += "; raise the limit of open files (ulimit -n)";
  throw Error(is_about_the_name(number) ? ErrorCode::kInvalidArgument : ErrorCode::kIo, text);
}

// Closes a descriptor at the end of a scope.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags, mode_t mode = 0)
      : value_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
    if (value_ < 0) throw_cannot_open(path);
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

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "of an unknown kind";
}

void require_regular_to_write(const std::filesystem::path& path, mode_t mode) {
  if (S_ISREG(mode)) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("cannot write to {}: it is {}; give the name of a regular file",
                          path.string(), kind_of(mode)));
}

std::size_t regular_file_size(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_errno("cannot stat", path.string());
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("cannot read {}: it is {}, not a regular file", path.string(),
                            kind_of(status.st_mode)));
  }
  return static_cast<std::size_t>(status.st_size);
}

// Where files are mapped, for the handler of SIGBUS, which may take no locks and no memory. What is
// beyond the table is not named.
struct Mapping {
  std::atomic<const std::byte*> begin = nullptr;
  std::atomic<std::size_t> size = 0;
  std::array<char, 240> path{};  // ends with 0
};
constexpr std::size_t kMappings = 512;
std::array<Mapping, kMappings> mappings;
std::mutex mappings_mutex;  // of those who write
int bus_error_status = 1;

void remember_mapping(const std::byte* begin, std::size_t size, const std::string& path) {
  const std::lock_guard lock(mappings_mutex);
  for (Mapping& mapping : mappings) {
    if (mapping.begin.load() != nullptr) continue;
    mapping.path.fill('\0');
    path.copy(mapping.path.data(), mapping.path.size() - 1);
    mapping.size.store(size);
    mapping.begin.store(begin);
    return;
  }
}

void forget_mapping(const std::byte* begin) {
  const std::lock_guard lock(mappings_mutex);
  for (Mapping& mapping : mappings) {
    if (mapping.begin.load() == begin) mapping.begin.store(nullptr);
  }
}

void say(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

extern "C" void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  for (const Mapping& mapping : mappings) {
    const std::byte* begin = mapping.begin.load();
    if (begin == nullptr || at < begin || at >= begin + mapping.size.load()) continue;
    say("\nlonghaul: error: ");
    say(mapping.path.data());
    say(" became shorter, or its disk failed, while it was used: what is finished is kept; put the "
        "file back and run the same command again\n");
    ::_exit(bus_error_status);
  }
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

// Without O_NONBLOCK, opening a pipe would wait for its writer.
Descriptor open_to_read(const std::filesystem::path& path) {
  return Descriptor(path, O_RDONLY | O_NONBLOCK);
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

// The file that a move to `path` replaces: what links lead to, so that they stay links. What is no
// regular file is refused, for a move would take the place of a device as well.
std::filesystem::path file_to_replace(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    require_regular_to_write(path, status.st_mode);
  } else if (errno != ENOENT) {
    throw_cannot_open(path);  // among others for links that lead to each other
  }
  std::filesystem::path file = path;
  while (std::filesystem::is_symlink(file))
    file = file.parent_path() / std::filesystem::read_symlink(file);
  return file;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const FileWait wait(FileUse::kReadingAtWork, path);
  const Descriptor descriptor = open_to_read(path);
  size_ = regular_file_size(descriptor.get(), path);
  if (size_ == 0) return;  // mmap refuses empty files; an empty span says the same
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (address == MAP_FAILED) throw_errno("cannot map", path.string());
  data_ = static_cast<const std::byte*>(address);
  remember_mapping(data_, size_, path.string());
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void explain_bus_errors(int exit_status) {
  bus_error_status = exit_status;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
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

namespace {

struct ReadArgs {
  int descriptor;
  std::string name;  // for messages
  std::size_t size;  // that it should have; more may come
  std::size_t max_bytes;
  const std::function<bool()>& stop_requested;
  bool may_wait = false;  // for whoever writes it
};

void throw_if_stopped(const ReadArgs& args) {
  if (args.stop_requested && args.stop_requested())
    throw Error(ErrorCode::kCancelled, "stopped while reading " + args.name);
}

// Looks up now and then, so that a stop can be asked for meanwhile.
void wait_for_more(const ReadArgs& args) {
  constexpr int kMilliseconds = 200;
  pollfd readable{args.descriptor, POLLIN, 0};
  for (;;) {
    throw_if_stopped(args);
    const int n = ::poll(&readable, 1, kMilliseconds);
    if (n > 0 || (n < 0 && errno != EINTR)) return;  // read() says what it is
  }
}

std::string read_to_end(const ReadArgs& args) {
  constexpr std::size_t kPart = std::size_t{16} << 20;
  const auto refuse_size = [&](std::size_t n_bytes) {
    const std::string text = fmt::format("{} has {} bytes; at most {} are accepted here", args.name,
                                         n_bytes, args.max_bytes);
    throw Error(ErrorCode::kInvalidArgument, text);
  };
  if (args.size > args.max_bytes) refuse_size(args.size);
  std::string text;
  for (;;) {
    args.may_wait ? wait_for_more(args) : throw_if_stopped(args);
    // One byte more than there should be, to see the end.
    const std::size_t begin = text.size();
    const std::size_t wanted = std::min(kPart, std::max(args.size + 1, begin + 4096) - begin);
    text.resize(begin + wanted);
    const ssize_t n = ::read(args.descriptor, text.data() + begin, wanted);
    if (n < 0 && errno == EINTR) {
      text.resize(begin);
      continue;
    }
    if (n < 0) throw_errno("cannot read", args.name);
    text.resize(begin + static_cast<std::size_t>(n));
    if (n == 0) return text;
    if (text.size() > args.max_bytes) refuse_size(text.size());
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes,
                      const std::function<bool()>& stop_requested) {
  std::optional<FileWait> wait;
  if (!stop_requested) wait.emplace(FileUse::kReadingAtWork, path);
  const Descriptor descriptor = open_to_read(path);
  return read_to_end({.descriptor = descriptor.get(),
                      .name = path.string(),
                      .size = regular_file_size(descriptor.get(), path),
                      .max_bytes = max_bytes,
                      .stop_requested = stop_requested});
}

std::string read_standard_input(std::size_t max_bytes,
                                const std::function<bool()>& stop_requested) {
  constexpr std::size_t kUsual = std::size_t{64} << 10;
  return read_to_end({.descriptor = STDIN_FILENO,
                      .name = "standard input",
                      .size = std::min(kUsual, max_bytes),
                      .max_bytes = max_bytes,
                      .stop_requested = stop_requested,
                      .may_wait = true});
}

AppendFile::AppendFile(const std::filesystem::path& path) : path_(path) {
  const FileWait wait(FileUse::kWriting, path);
  std::error_code ignored;
  was_created_ = !std::filesystem::exists(path, ignored);
  // Without O_NONBLOCK, a pipe would wait for its reader.
  Descriptor descriptor(path, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK, 0644);
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) throw_errno("cannot stat", path.string());
  require_regular_to_write(path, status.st_mode);
  size_ = static_cast<std::size_t>(status.st_size);
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
  if (was_created_) sync_folder_of(path);
  descriptor_ = descriptor.release();
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      was_created_(other.was_created_) {}

void AppendFile::require_unchanged() const {
  struct stat open_file {};
  struct stat named {};
  if (::fstat(descriptor_, &open_file) != 0) throw_errno("cannot stat", path_.string());
  std::string what;
  if (::stat(path_.c_str(), &named) != 0) {
    what = fmt::format("it is gone ({})", std::generic_category().message(errno));
  } else if (named.st_dev != open_file.st_dev || named.st_ino != open_file.st_ino) {
    what = "another file has its name now";
  } else if (static_cast<std::size_t>(open_file.st_size) != size_) {
    what = fmt::format("it had {} bytes and has {}", size_, open_file.st_size);
  } else {
    return;
  }
  throw Error(ErrorCode::kIo,
              fmt::format("{} was changed by somebody else while it was written: {}",
                          path_.string(), what));
}

void AppendFile::append(std::string_view text) {
  const FileWait wait(FileUse::kWriting, path_);
  require_unchanged();
  write_all(descriptor_, text, path_);
  size_ += text.size();
}

void AppendFile::sync() {
  const FileWait wait(FileUse::kWriting, path_);
  if (::fdatasync(descriptor_) != 0) throw_errno("cannot sync", path_.string());
}

void AppendFile::truncate(std::size_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0)
    throw_errno("cannot truncate", path_.string());
  size_ = size;
}

std::filesystem::path partial_path(const std::filesystem::path& path) {
  return path.string() + ".partial";
}

void require_replaceable(const std::filesystem::path& path) {
  const std::filesystem::path file = file_to_replace(path);
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (!std::filesystem::is_directory(folder)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("cannot write to {}: there is no folder {}", path.string(), folder.string()));
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("cannot write to {}: files cannot be made in the folder {} ({})", path.string(),
                    folder.string(), std::generic_category().message(errno)));
  }
}

void replace_file(const std::filesystem::path& path, std::string_view text) {
  const FileWait wait(FileUse::kWriting, path);
  const std::filesystem::path file = file_to_replace(path);
  const std::filesystem::path partial = partial_path(file);
  {
    const Descriptor descriptor(partial, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    try {
      write_all(descriptor.get(), text, partial);
      sync_file(partial);
    } catch (...) {  // of a full device, say
      std::error_code ignored;
      std::filesystem::remove(partial, ignored);
      throw;
    }
  }
  rename_partial(file);
  sync_folder_of(file);
}

}  // namespace longhaul
