// What ranks of one host use of each other: memory of another rank's GPU, and words in the host's
// memory that streams write and wait for. Needs no CUDA to include; in a build without it all of it
// throws kUnsupported.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/device/device_cuda.h"

namespace longhaul::cuda {

// Memory that another rank may open, as that rank is told of it.
struct MemoryTicket {
  std::int64_t process = 0;      // 0: there is none
  std::int64_t gpu = 0;          // by its number in that process
  std::byte* address = nullptr;  // there
  std::array<unsigned char, 64> handle{};
};

// Memory of the thread's GPU that other ranks may open. It is apart from arenas: who opens memory
// has all that was taken with it.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  explicit SharedBuffer(std::size_t bytes);
  ~SharedBuffer();
  SharedBuffer(SharedBuffer&& other) noexcept;
  SharedBuffer& operator=(SharedBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  MemoryTicket ticket() const;
  // It stays until the process ends: for memory that others have not closed.
  void leave() noexcept { data_ = nullptr; }

 private:
  std::byte* data_ = nullptr;
};

// Another rank's, of this process or of another one on this host. Throws kCuda or kUnsupported
// where this thread's GPU cannot reach it. It must be gone before its owner frees it.
class OpenedBuffer {
 public:
  OpenedBuffer() = default;
  explicit OpenedBuffer(const MemoryTicket& ticket);
  ~OpenedBuffer();
  OpenedBuffer(OpenedBuffer&& other) noexcept;
  OpenedBuffer& operator=(OpenedBuffer&& other) noexcept;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  bool is_mapped_ = false;  // of another process
};

// Lets GPUs write and read memory of the host, which must stay as long.
class GpuWindow {
 public:
  GpuWindow() = default;
  GpuWindow(void* memory, std::size_t bytes);
  ~GpuWindow();
  GpuWindow(GpuWindow&& other) noexcept;
  GpuWindow& operator=(GpuWindow&& other) noexcept;

  // Where the thread's GPU has it.
  std::byte* on_gpu() const { return on_gpu_; }

 private:
  void* memory_ = nullptr;
  std::byte* on_gpu_ = nullptr;
};

// Words of 32 bits, aligned, by their addresses on the GPU. They are numbers on a circle: of two
// that are less than 2^31 apart one comes after the other.
class StreamWords {
 public:
  // Nullopt where the driver has no such operations; `why` then says so.
  static std::optional<StreamWords> find(std::string& why);
  // What was queued before is done, and seen by all, when the word is `value`.
  void queue_write(Stream& stream, std::byte* word, std::uint32_t value) const;
  // What is queued next starts when the word is `value` or comes after it, for which it waits
  // without end: whoever queues this must be able to set the word himself.
  void queue_wait(Stream& stream, const std::byte* word, std::uint32_t value) const;

 private:
  StreamWords() = default;
  // The driver's functions; not in builds without CUDA.
  [[maybe_unused]] void* write_ = nullptr;
  [[maybe_unused]] void* wait_ = nullptr;
  [[maybe_unused]] std::uint32_t wait_flags_ = 0;
};

}  // namespace longhaul::cuda
