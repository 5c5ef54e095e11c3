// CUDA's runtime on host memory (include/cuda_runtime.h).
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/cuda_on_host/graphs.h"

namespace longhaul::cuda_on_host {

constexpr std::size_t kArenaBytes = std::size_t{1} << 30U;

namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Memory of the GPU: first fit. Closed to a thread by a memory protection key, which takes a few
// cycles and concerns this thread alone; to all threads by mprotect where the CPU has no keys.
class Arena {
 public:
  Arena() {
    void* at = mmap(nullptr, kArenaBytes + kHugePage, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) std::abort();
    begin_ = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(at) + kHugePage - 1) /
                                          kHugePage * kHugePage);
    // Where there are any: mprotect takes a hundred times longer for small pages.
    static_cast<void>(madvise(begin_, kArenaBytes, MADV_HUGEPAGE));
    key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (key_ >= 0 && pkey_mprotect(begin_, kArenaBytes, PROT_READ | PROT_WRITE, key_) != 0) {
      std::abort();
    }
  }
  std::byte* take(std::size_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;  // and a guard
    std::size_t at = 0;
    for (const auto& [begin, size] : taken_) {
      if (begin - at >= bytes) break;
      at = begin + size;
    }
    if (kArenaBytes - at < bytes) return nullptr;
    taken_[at] = bytes;
    return begin_ + at;
  }
  // Its bytes. Aborts if something was written behind the memory.
  std::size_t give_back(void* data) {
    const auto found =
        taken_.find(static_cast<std::size_t>(static_cast<std::byte*>(data) - begin_));
    if (found == taken_.end()) std::abort();
    const std::byte* end = begin_ + found->first + found->second;
    for (const std::byte* at = end - kAlignment; at < end; ++at) {
      if (*at == std::byte{0xff}) continue;
      std::fputs("cuda_on_host: a kernel wrote behind its memory\n", stderr);
      std::abort();
    }
    const std::size_t bytes = found->second;
    taken_.erase(found);
    return bytes;
  }
  bool has(const void* at) const {
    const auto* byte = static_cast<const std::byte*>(at);
    if (byte < begin_ || byte >= begin_ + kArenaBytes) return false;
    auto found = taken_.upper_bound(static_cast<std::size_t>(byte - begin_));
    if (found == taken_.begin()) return false;
    --found;
    return byte < begin_ + found->first + found->second - kAlignment;
  }
  std::size_t bytes_taken() const {
    std::size_t out = 0;
    for (const auto& [begin, size] : taken_) out += size;
    return out;
  }
  void open() {
    if (n_open_++ > 0) return;
    if (key_ >= 0) {
      pkey_set(key_, 0);
    } else {
      protect(PROT_READ | PROT_WRITE);
    }
  }
  void close() {
    if (--n_open_ > 0) return;
    if (key_ >= 0) {
      pkey_set(key_, PKEY_DISABLE_ACCESS);
    } else {
      protect(PROT_NONE);
    }
  }

 private:
  void protect(int how) const {
    if (mprotect(begin_, kArenaBytes, how) != 0) std::abort();
  }
  std::byte* begin_ = nullptr;
  int key_ = -1;
  std::map<std::size_t, std::size_t> taken_;
  int n_open_ = 0;
};

Arena& arena() {
  static Arena the_arena;
  return the_arena;
}

// Held by the thread that has access: streams of several threads work one after another.
std::recursive_mutex& gpu() {
  static std::recursive_mutex the_gpu;
  return the_gpu;
}

// Host memory that was taken from CUDA, and its bytes.
std::map<const std::byte*, std::size_t>& pinned() {
  static std::map<const std::byte*, std::size_t> the_memory;
  return the_memory;
}
bool is_pinned(const void* at) {
  const std::scoped_lock lock(gpu());
  const auto* byte = static_cast<const std::byte*>(at);
  auto found = pinned().upper_bound(byte);
  return found != pinned().begin() && (--found, byte < found->first + found->second);
}

template <typename Function>
const void* address(Function* function) {
  return reinterpret_cast<const void*>(function);
}

}  // namespace

DeviceMemoryAccess::DeviceMemoryAccess() {
  gpu().lock();
  arena().open();
}
DeviceMemoryAccess::~DeviceMemoryAccess() {
  arena().close();
  gpu().unlock();
}

bool is_device_memory(const void* at) {
  const std::scoped_lock lock(gpu());
  return arena().has(at);
}

}  // namespace longhaul::cuda_on_host

using longhaul::cuda_on_host::address;
using longhaul::cuda_on_host::arena;
using longhaul::cuda_on_host::DeviceMemoryAccess;
using longhaul::cuda_on_host::forbid_in_capture;
using longhaul::cuda_on_host::gpu;
using longhaul::cuda_on_host::is_pinned;
using longhaul::cuda_on_host::pinned;
using longhaul::cuda_on_host::queue;

const char* cudaGetErrorName(cudaError_t) { return "cuda_on_host"; }
const char* cudaGetErrorString(cudaError_t) { return "an error of CUDA on the host"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
  return ordinal == 0 ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::snprintf(properties->name, sizeof properties->name, "host");
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 227 << 10;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::scoped_lock lock(gpu());
  *total = longhaul::cuda_on_host::kArenaBytes;
  *free = *total - arena().bytes_taken();
  return cudaSuccess;
}
// New memory holds NaNs, so that nobody relies on zeros; so does memory that was freed.
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  forbid_in_capture("cudaMalloc");
  const DeviceMemoryAccess access;
  *data = arena().take(bytes);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, ((bytes + 255) / 256 + 1) * 256);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  forbid_in_capture("cudaFree");
  const DeviceMemoryAccess access;
  std::memset(data, 0xff, arena().give_back(data));
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  forbid_in_capture("cudaMallocHost");
  *data = std::malloc(bytes);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  const std::scoped_lock lock(gpu());
  pinned()[static_cast<std::byte*>(*data)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  forbid_in_capture("cudaFreeHost");
  const std::scoped_lock lock(gpu());
  if (pinned().erase(static_cast<std::byte*>(data)) == 0) std::abort();
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const bool is_pageable = (kind == cudaMemcpyHostToDevice && !is_pinned(from)) ||
                           (kind == cudaMemcpyDeviceToHost && !is_pinned(to));
  if (is_pageable) forbid_in_capture("a copy of pageable memory");
  queue(stream, address(cudaMemcpyAsync), [=] {
    const DeviceMemoryAccess access;
    std::memmove(to, from, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  queue(stream, address(cudaMemsetAsync), [=] {
    const DeviceMemoryAccess access;
    std::memset(to, value, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  forbid_in_capture("cudaStreamDestroy");
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  forbid_in_capture("cudaStreamSynchronize");
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  forbid_in_capture("cudaStreamQuery");
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  forbid_in_capture("cudaStreamWaitEvent");  // which CUDA has, but nobody here needs
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  forbid_in_capture("cudaEventRecord");  // the same
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  forbid_in_capture("cudaEventQuery");
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  forbid_in_capture("cudaEventSynchronize");
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return cudaSuccess;
}
