// CUDA's runtime on host memory (include/cuda_runtime.h).
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace longhaul::cuda_on_host {

constexpr std::size_t kArenaBytes = std::size_t{1} << 30U;

namespace {

constexpr std::size_t kAlignment = 256;

// Memory of the GPU: first fit.
class Arena {
 public:
  Arena() {
    void* at =
        mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) std::abort();
    begin_ = static_cast<std::byte*>(at);
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
  // Aborts if something was written behind the memory.
  void give_back(void* data) {
    const auto found =
        taken_.find(static_cast<std::size_t>(static_cast<std::byte*>(data) - begin_));
    if (found == taken_.end()) std::abort();
    const std::byte* end = begin_ + found->first + found->second;
    for (const std::byte* at = end - kAlignment; at < end; ++at) {
      if (*at == std::byte{0xff}) continue;
      std::fputs("cuda_on_host: a kernel wrote behind its memory\n", stderr);
      std::abort();
    }
    taken_.erase(found);
  }
  std::size_t bytes_taken() const {
    std::size_t out = 0;
    for (const auto& [begin, size] : taken_) out += size;
    return out;
  }
  void open() {
    if (n_open_++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void close() {
    if (--n_open_ == 0) protect(PROT_NONE);
  }

 private:
  void protect(int how) const {
    if (mprotect(begin_, kArenaBytes, how) != 0) std::abort();
  }
  std::byte* begin_ = nullptr;
  std::map<std::size_t, std::size_t> taken_;
  int n_open_ = 0;
};

Arena& arena() {
  static Arena the_arena;
  return the_arena;
}

}  // namespace

DeviceMemoryAccess::DeviceMemoryAccess() { arena().open(); }
DeviceMemoryAccess::~DeviceMemoryAccess() { arena().close(); }

}  // namespace longhaul::cuda_on_host

using longhaul::cuda_on_host::arena;
using longhaul::cuda_on_host::DeviceMemoryAccess;

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
  *total = longhaul::cuda_on_host::kArenaBytes;
  *free = *total - arena().bytes_taken();
  return cudaSuccess;
}
// New memory holds NaNs, so that nobody relies on zeros.
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  *data = arena().take(bytes);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  const DeviceMemoryAccess access;
  std::memset(*data, 0xff, ((bytes + 255) / 256 + 1) * 256);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  const DeviceMemoryAccess access;
  arena().give_back(data);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  *data = std::malloc(bytes);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  const DeviceMemoryAccess access;
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  const DeviceMemoryAccess access;
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return cudaSuccess;
}
