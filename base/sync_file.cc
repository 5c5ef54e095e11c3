#include "base/sync_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"

namespace longhaul {
namespace {

void sync(const std::filesystem::path& path, int flags, const char* what) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  const bool is_synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int number = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (is_synced) return;
  errno = number;
  throw_errno(what, path.string());
}

}  // namespace

void sync_file(const std::filesystem::path& path) { sync(path, 0, "cannot sync"); }

void rename_partial(const std::filesystem::path& path) {
  if (std::rename(partial_path(path).c_str(), path.c_str()) != 0)
    throw_errno("cannot rename to", path.string());
}

void sync_folder_of(const std::filesystem::path& path) {
  sync(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."), O_DIRECTORY,
       "cannot sync folder");
}

}  // namespace longhaul
