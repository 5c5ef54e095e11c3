// Preloaded into a process under test: files whose disk does not answer. open() and fdatasync() of
// a file whose path ends with HANG_PATH say "hangs" on stderr and never return, after HANG_AFTER
// such calls; of several ranks on HANG_RANK alone.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

void hang_if_asked(std::string_view call, std::string_view path) {
  static std::atomic<int> n_calls = 0;
  const std::string_view wanted = variable("HANG_PATH");
  const std::string_view rank = variable("HANG_RANK");
  if (wanted.empty() || !path.ends_with(wanted) || variable("HANG_CALL") != call) return;
  if (!rank.empty() && rank != variable("OMPI_COMM_WORLD_RANK")) return;
  if (n_calls++ < std::atoi(std::string(variable("HANG_AFTER")).c_str())) return;
  constexpr std::string_view kText = "hangs\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  for (;;) ::pause();
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int open_or_hang(const char* name, const char* path, int flags, std::va_list rest) {
  hang_if_asked("open", path);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  return next<int(const char*, int, ...)>(name)(path, flags, mode);
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const int file = open_or_hang("open", path, flags, rest);
  va_end(rest);
  return file;
}

extern "C" int open64(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const int file = open_or_hang("open64", path, flags, rest);
  va_end(rest);
  return file;
}

extern "C" int fdatasync(int file) {
  std::string link = "/proc/self/fd/" + std::to_string(file);
  char path[4096];
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  if (length > 0) hang_if_asked("fdatasync", {path, static_cast<std::size_t>(length)});
  return next<int(int)>("fdatasync")(file);
}
