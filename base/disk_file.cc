#include "base/disk_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace longhaul {

// Without O_NONBLOCK, a pipe of this name would wait for its writer.
PositionedFile::PositionedFile(const std::filesystem::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (descriptor_ < 0) throw_errno("cannot open", path.string());
}

PositionedFile::~PositionedFile() { ::close(descriptor_); }

void PositionedFile::read(std::int64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t n = ::pread(descriptor_, to.data(), to.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno("cannot read", path_.string());
    if (n == 0)
      throw Error(ErrorCode::kIo, fmt::format("{} ends before byte {}", path_.string(), offset));
    offset += n;
    to = to.subspan(static_cast<std::size_t>(n));
  }
}

}  // namespace longhaul
