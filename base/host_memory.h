// Memory of the host that tensors, cache blocks and scratch lie in. What has the size of a huge
// page or more is mapped from the system by itself, which is asked for huge pages (2 MiB instead of
// 4 KiB): whoever streams through gigabytes of weights and keys then waits less for addresses.
#pragma once
#include <cstddef>
#include <string>
#include <utility>

namespace longhaul {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Zeros that start at a multiple of kHugePageBytes, taken from the system; null where it gives
// none. A page lies near the thread that writes it first, and takes no memory before that.
std::byte* map_pages(std::size_t bytes) noexcept;
void unmap_pages(std::byte* memory, std::size_t bytes) noexcept;

// Owns memory aligned to 64 bytes. Move-only.
class HostMemory {
 public:
  HostMemory() = default;
  // Throws std::bad_alloc.
  explicit HostMemory(std::size_t bytes);
  ~HostMemory() { free(); }
  HostMemory(HostMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    other.free();
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Whether it held zeros at first; else that is not defined.
  bool began_as_zeros() const { return is_mapped(); }

 private:
  bool is_mapped() const { return bytes_ >= kHugePageBytes; }
  void free() noexcept;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Why the system gives no huge pages to whoever asks for them, in words; empty where it may.
std::string huge_pages_refusal();

}  // namespace longhaul
