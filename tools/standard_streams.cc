#include "tools/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/error.h"
#include "base/file_wait.h"
#include "base/print_stderr.h"
#include "tools/job/exit_status.h"

namespace longhaul {
namespace {

// `reason`: errno; 0: it is not known any more.
std::string cannot_write(int reason) {
  return fmt::format("cannot write to standard output{}",
                     reason == 0 ? "" : ": " + std::generic_category().message(reason));
}

}  // namespace

void hold_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1) continue;
    // The lowest number that is free is this one. Opened for the other direction.
    const int mode = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    [[maybe_unused]] const int opened = ::open("/dev/null", mode);
  }
}

void print_now(std::string_view text) {
  const FileWait wait(FileUse::kStream, "standard output");
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return;
  throw Error(ErrorCode::kIo, cannot_write(errno));
}

int status_with_output(int status) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  const int reason = errno;
  if (!failed || reason == EPIPE || status != kExitDone) return status;
  print_stderr("longhaul: error: {}\n", cannot_write(reason));
  return kExitEnvironment;
}

}  // namespace longhaul
