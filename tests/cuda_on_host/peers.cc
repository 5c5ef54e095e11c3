// What ranks of one host do with each other's GPUs: memory that is opened by a handle, which within
// one process holds its address, memory of the host that GPUs reach, and streams that wait for
// words there.
#include <cuda_runtime.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "tests/cuda_on_host/device_memory.h"
#include "tests/cuda_on_host/fail.h"
#include "tests/cuda_on_host/streams.h"

namespace longhaul::cuda_on_host {
namespace {

using Lock = std::scoped_lock<std::recursive_mutex>;

struct Peers {
  std::set<std::pair<int, int>> enabled;                   // (GPU, the one that it may reach)
  std::map<void*, int> opened;                             // by handles, how often
  std::map<std::byte*, std::size_t, std::less<>> windows;  // host memory that GPUs reach
};
Peers& peers() {
  static Peers the_peers;
  return the_peers;
}

bool is_in_window(const std::byte* at, std::size_t bytes) {
  auto after = peers().windows.upper_bound(at);
  if (after == peers().windows.begin()) return false;
  --after;
  return at + bytes <= after->first + after->second;
}

// --- The driver's operations on words --------------------------------------------------------

constexpr unsigned kAtLeast = 0;
constexpr unsigned kFlushWrites = 1U << 30;

std::uint32_t* word_at(unsigned long long address) {
  auto* word = reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(address));
  if (address % sizeof *word != 0) fail("a word that is not aligned");
  const Lock lock(runtime_lock());
  if (!is_in_window(reinterpret_cast<std::byte*>(word), sizeof *word))
    fail("a stream's word lies where the GPU does not reach");
  return word;
}

int write_value(cudaStream_t stream, unsigned long long address, std::uint32_t value,
                unsigned flags) {
  forbid_in_capture("cuStreamWriteValue32");
  if (flags != 0) fail("flags of cuStreamWriteValue32 that nobody made");
  enqueue(stream, [word = word_at(address), value] {
    std::atomic_ref(*word).store(value);
    return true;
  });
  return 0;
}

int wait_value(cudaStream_t stream, unsigned long long address, std::uint32_t value,
               unsigned flags) {
  forbid_in_capture("cuStreamWaitValue32");
  if ((flags & ~kFlushWrites) != kAtLeast) fail("flags of cuStreamWaitValue32 that nobody made");
  enqueue(stream, [word = word_at(address), value] {
    return static_cast<std::int32_t>(std::atomic_ref(*word).load() - value) >= 0;
  });
  return 0;
}

}  // namespace
}  // namespace longhaul::cuda_on_host

using namespace longhaul::cuda_on_host;

cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long) {
  const std::string_view wanted = name;
  *function = wanted == "cuStreamWriteValue32"  ? reinterpret_cast<void*>(&write_value)
              : wanted == "cuStreamWaitValue32" ? reinterpret_cast<void*>(&wait_value)
                                                : nullptr;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  int own = 0;
  cudaGetDevice(&own);
  if (own == peer) return cudaErrorInvalidValue;
  const Lock lock(runtime_lock());
  return peers().enabled.emplace(own, peer).second ? cudaSuccess
                                                   : cudaErrorPeerAccessAlreadyEnabled;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data) {
  if (!is_device_memory(data)) return cudaErrorInvalidValue;
  *handle = {};
  std::memcpy(handle->reserved, &data, sizeof data);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned) {
  wait_for_gpu("cudaIpcOpenMemHandle");
  std::memcpy(data, handle.reserved, sizeof *data);
  if (!is_device_memory(*data)) return cudaErrorInvalidValue;
  const Lock lock(runtime_lock());
  ++peers().opened[*data];
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* data) {
  wait_for_gpu("cudaIpcCloseMemHandle");
  const Lock lock(runtime_lock());
  if (!is_device_memory(data)) fail("memory was freed before those who had opened it closed it");
  if (peers().opened[data]-- <= 0) fail("memory is closed that was not opened");
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned) {
  forbid_in_capture("cudaHostRegister");
  wait_for_gpu("cudaHostRegister");
  const Lock lock(runtime_lock());
  if (is_in_window(static_cast<std::byte*>(data), 1)) return cudaErrorInvalidValue;
  peers().windows[static_cast<std::byte*>(data)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* data) {
  forbid_in_capture("cudaHostUnregister");
  wait_for_gpu("cudaHostUnregister");
  const Lock lock(runtime_lock());
  if (peers().windows.erase(static_cast<std::byte*>(data)) == 0)
    fail("memory of the host is let go that was not given");
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** on_gpu, void* data, unsigned) {
  *on_gpu = data;
  return cudaSuccess;
}
