// A file that is read here and there, by any number of threads. Every failure throws kIo with the
// path and the system's reason. Local.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace longhaul {

class PositionedFile {
 public:
  explicit PositionedFile(const std::filesystem::path& path);
  ~PositionedFile();
  PositionedFile(const PositionedFile&) = delete;
  PositionedFile& operator=(const PositionedFile&) = delete;
  // All of `to`; throws kIo where the file ends before.
  void read(std::int64_t offset, std::span<std::byte> to) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace longhaul
