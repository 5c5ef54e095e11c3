// Memory of a host that several of its processes map: POSIX shared memory. Linux only.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace longhaul {

// Move-only. What others have mapped stays when it goes; its name goes with the one who made it, at
// the latest.
class SharedSegment {
 public:
  SharedSegment() = default;
  // Whole pages of zeros, of this user alone, under a name that nobody can guess. Throws kIo.
  explicit SharedSegment(std::size_t bytes);
  // The one of that name and size; nullopt where there is none: it is another host's, or its name
  // has gone. Throws kIo.
  static std::optional<SharedSegment> open(const std::string& name, std::size_t bytes);
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // "/longhaul." and 32 digits; empty: it has none any more, or somebody else made it.
  const std::string& name() const { return name_; }
  // From now on nobody can open it.
  void unlink() noexcept;

 private:
  void map(int file, std::size_t bytes);

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::string name_;
};

}  // namespace longhaul
