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

std::byte* take_pinned(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t result = cudaMallocHost(&data, bytes);
  if (result == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw Error(ErrorCode::kOutOfMemory, fmt::format("pinned host memory: {} bytes", bytes));
  }
  check_cuda(result, "cudaMallocHost");
  return static_cast<std::byte*>(data);
}

std::byte* take_from_system(MemoryKind kind, std::size_t bytes) {
  return kind == MemoryKind::kGpu ? take_from_gpu(bytes) : take_pinned(bytes);
}
void give_back_to_system(MemoryKind kind, std::byte* memory) noexcept {
  if (kind == MemoryKind::kGpu) return log_failure(cudaFree(memory), "cudaFree");
  log_failure(cudaFreeHost(memory), "cudaFreeHost");
}

}  // namespace

// What an arena and the pieces of it share: it goes with the last of them. Pieces may go on other
// threads.
class ArenaMemory {
 public:
  ArenaMemory(MemoryKind kind, std::size_t bytes)
      : kind_(kind), memory_(take_from_system(kind, bytes)), pieces_(bytes) {}
  ~ArenaMemory() { give_back_to_system(kind_, memory_); }
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
  MemoryKind kind_;
  std::byte* memory_;
  mutable std::mutex lock_;
  PieceMap pieces_;
  std::int64_t n_outside_ = 0;
};

namespace {

std::shared_ptr<ArenaMemory> arena_memory(MemoryKind kind, std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  return std::make_shared<ArenaMemory>(kind, static_cast<std::size_t>(bytes));
}

}  // namespace

MemoryArena::OfKinds& MemoryArena::of_this_thread() {
  thread_local OfKinds the_arenas;
  return the_arenas;
}

MemoryArena::MemoryArena(const ArenaBytes& bytes)
    : memory_{arena_memory(MemoryKind::kGpu, bytes.gpu),
              arena_memory(MemoryKind::kPinned, bytes.pinned)},
      before_(std::exchange(of_this_thread(), memory_)) {}

MemoryArena::~MemoryArena() { of_this_thread() = std::move(before_); }

MemoryArena::Use MemoryArena::use(MemoryKind kind) const {
  const auto& memory = memory_[static_cast<std::size_t>(kind)];
  return memory ? memory->use() : Use{};
}

OwnedMemory::OwnedMemory(MemoryKind kind, std::size_t bytes, From from)
    : bytes_(bytes), kind_(kind) {
  if (bytes == 0) return;
  const auto& arena = MemoryArena::of_this_thread()[static_cast<std::size_t>(kind)];
  if (arena && from == From::kArena) {
    data_ = arena->take(bytes);
    if (data_ != nullptr) {
      arena_ = arena;
      return;
    }
  }
  data_ = take_from_system(kind, bytes);
}

OwnedMemory::~OwnedMemory() {
  if (data_ == nullptr) return;
  if (arena_) {
    arena_->give_back(data_);
  } else {
    give_back_to_system(kind_, data_);
  }
}

OwnedMemory::OwnedMemory(OwnedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      kind_(other.kind_),
      arena_(std::move(other.arena_)) {}

OwnedMemory& OwnedMemory::operator=(OwnedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(kind_, other.kind_);
  std::swap(arena_, other.arena_);
  return *this;
}

}  // namespace longhaul::cuda
