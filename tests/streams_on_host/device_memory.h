// The memory of the GPUs that tests/streams_on_host makes up: one arena, mapped twice. Pointers of
// the program name the first mapping, which nobody can touch; copies go through the second.
#pragma once
#include <cstddef>
#include <map>

namespace longhaul::streams_on_host {

// Not thread-safe.
class DeviceMemory {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 30U;

  DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // First fit; filled with NaNs, so that nobody relies on zeros. Null when it is full.
  std::byte* take(std::size_t bytes);
  // Aborts if something was written behind the memory.
  void give_back(void* data);
  std::size_t bytes_taken() const;

  bool contains(const void* data) const;
  // Where the same byte can be touched at any time; host memory as it is.
  std::byte* reachable(const void* data) const;

 private:
  std::byte* begin_ = nullptr;
  std::byte* alias_ = nullptr;
  std::map<std::size_t, std::size_t> taken_;  // offset -> size
};

}  // namespace longhaul::streams_on_host
