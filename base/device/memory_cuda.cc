// Memory of GPUs, and pinned memory of the host.
#include <cuda_runtime.h>

#include <mutex>
#include <utility>

#include <fmt/format.h>
#include "base/device/check_cuda.h"
#include "base/device/device_cuda.h"
#include "base/device/log_cuda.h"
#include "base/error.h"
#include "base/piece_map.h"

namespace longhaul::cuda {
namespace {

std::byte* take_from_gpu(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, bytes);
  if (result == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // not the failure of the next call
    std::size_t free = 0;
    std::size_t total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw Error(
        ErrorCode::kOutOfMemory,
        fmt::format("GPU memory: {} bytes were asked for, {} of {} are free", bytes, free, total));
  }
  check_cuda(result, "cudaMalloc");
  return static_cast<std::byte*>(data);
}

}  // namespace

// What an arena and the buffers out of it share: it goes with the last of them. Buffers may go on
// other threads.
class ArenaMemory {
 public:
  explicit ArenaMemory(std::size_t bytes) : memory_(take_from_gpu(bytes)), pieces_(bytes) {}
  ~ArenaMemory() { log_failure(cudaFree(memory_), "cudaFree"); }
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;

  // Null when there is no room.
  std::byte* take(std::size_t bytes) {
    const std::scoped_lock lock(lock_);
    const auto offset = pieces_.take(bytes);
    if (!offset) ++n_outside_;
    return offset ? memory_ + *offset : nullptr;
  }
  void give_back(const std::byte* piece) {
    const std::scoped_lock lock(lock_);
    pieces_.give_back(static_cast<std::size_t>(piece - memory_));
  }
  MemoryArena::Use use() const {
    const std::scoped_lock lock(lock_);
    return {.bytes = pieces_.bytes(),
            .bytes_taken = pieces_.bytes_taken(),
            .most_taken = pieces_.most_taken(),
            .n_outside = n_outside_};
  }

 private:
  std::byte* memory_;
  mutable std::mutex lock_;
  PieceMap pieces_;
  std::int64_t n_outside_ = 0;
};

namespace {
thread_local std::shared_ptr<ArenaMemory> arena_of_this_thread;
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  if (const auto& arena = arena_of_this_thread) {
    data_ = arena->take(bytes);
    if (data_ != nullptr) {
      arena_ = arena;
      return;
    }
  }
  data_ = take_from_gpu(bytes);
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (arena_) {
    arena_->give_back(data_);
  } else {
    log_failure(cudaFree(data_), "cudaFree");
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      arena_(std::move(other.arena_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(arena_, other.arena_);
  return *this;
}

MemoryArena::MemoryArena(std::size_t bytes)
    : memory_(std::make_shared<ArenaMemory>(bytes)),
      before_(std::exchange(arena_of_this_thread, memory_)) {}

MemoryArena::~MemoryArena() { arena_of_this_thread = std::move(before_); }

MemoryArena::Use MemoryArena::use() const { return memory_->use(); }

PinnedBuffer::PinnedBuffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  const cudaError_t result = cudaMallocHost(&data, bytes);
  if (result == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw Error(ErrorCode::kOutOfMemory, fmt::format("pinned host memory: {} bytes", bytes));
  }
  check_cuda(result, "cudaMallocHost");
  data_ = static_cast<std::byte*>(data);
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) log_failure(cudaFreeHost(data_), "cudaFreeHost");
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace longhaul::cuda
