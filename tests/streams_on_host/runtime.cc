// CUDA's runtime on host memory (include/cuda_runtime.h).
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "tests/streams_on_host/cuda_objects.h"

namespace longhaul::streams_on_host {
namespace {

struct Runtime {
  std::map<std::byte*, std::size_t> pinned;
  std::set<cudaStream_t> streams;
  int n_devices = 1;
};
Runtime& runtime() {
  static Runtime the_runtime;
  return the_runtime;
}

thread_local int device_of_this_thread = 0;

bool is_pinned(const void* data) {
  auto* at = static_cast<std::byte*>(const_cast<void*>(data));
  const auto& all = runtime().pinned;
  auto after = all.upper_bound(at);
  if (after == all.begin()) return false;
  --after;
  return at < after->first + after->second;
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "streams_on_host: %s\n", what);
  std::abort();
}

}  // namespace

DeviceMemory& device_memory() {
  static DeviceMemory the_memory;
  return the_memory;
}

void set_device_count(int count) { runtime().n_devices = count; }

}  // namespace longhaul::streams_on_host

using longhaul::streams_on_host::advance;
using longhaul::streams_on_host::device_memory;
using longhaul::streams_on_host::device_of_this_thread;
using longhaul::streams_on_host::enqueue;
using longhaul::streams_on_host::fail;
using longhaul::streams_on_host::is_pinned;
using longhaul::streams_on_host::runtime;
using longhaul::streams_on_host::runtime_lock;
using longhaul::streams_on_host::work_until;
using Lock = std::lock_guard<std::recursive_mutex>;

const char* cudaGetErrorName(cudaError_t) { return "streams_on_host"; }
const char* cudaGetErrorString(cudaError_t) { return "an error of CUDA on the host"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = runtime().n_devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
  if (ordinal < 0 || ordinal >= runtime().n_devices) return cudaErrorInvalidValue;
  device_of_this_thread = ordinal;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = device_of_this_thread;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "host");
  properties->uuid.bytes[0] = static_cast<char>(ordinal + 1);
  properties->major = 8;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 163 << 10;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Lock lock(runtime_lock());
  *total = longhaul::streams_on_host::DeviceMemory::kBytes;
  *free = *total - device_memory().bytes_taken();
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const Lock lock(runtime_lock());
  attributes->type = device_memory().contains(data) ? cudaMemoryTypeDevice
                     : is_pinned(data)              ? cudaMemoryTypeHost
                                                    : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  const Lock lock(runtime_lock());
  *data = device_memory().take(bytes);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
// Work that uses the memory is done first, as by CUDA's.
cudaError_t cudaFree(void* data) {
  const Lock lock(runtime_lock());
  for (const cudaStream_t stream : runtime().streams) advance(stream, SIZE_MAX);
  device_memory().give_back(data);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  const Lock lock(runtime_lock());
  *data = std::malloc(bytes);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  runtime().pinned[static_cast<std::byte*>(*data)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  const Lock lock(runtime_lock());
  for (const cudaStream_t stream : runtime().streams) advance(stream, SIZE_MAX);
  runtime().pinned.erase(static_cast<std::byte*>(data));
  std::free(data);
  return cudaSuccess;
}

// Pinned memory is read and written when the stream comes to it. Other host memory is read before
// the call returns, and written before it returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const bool to_device = kind != cudaMemcpyDeviceToHost;
  const bool from_device = kind != cudaMemcpyHostToDevice;
  bool waits = false;
  {
    const Lock lock(runtime_lock());
    if (device_memory().contains(to) != to_device ||
        device_memory().contains(from) != from_device) {
      fail("a copy's kind is not that of its memory");
    }
    if (!from_device && !is_pinned(from)) {
      const auto* begin = static_cast<const std::byte*>(from);
      enqueue(stream, [to, kept = std::vector<std::byte>(begin, begin + bytes)] {
        std::memcpy(device_memory().reachable(to), kept.data(), kept.size());
        return true;
      });
    } else {
      enqueue(stream, [=] {
        std::memmove(device_memory().reachable(to), device_memory().reachable(from), bytes);
        return true;
      });
    }
    waits = !to_device && !is_pinned(to);
  }
  if (waits) return cudaStreamSynchronize(stream);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  enqueue(stream, [=] {
    std::memset(device_memory().reachable(to), value, bytes);
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Lock lock(runtime_lock());
  *stream = new CUstream_st;
  runtime().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cudaStreamSynchronize(stream);
  const Lock lock(runtime_lock());
  runtime().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  work_until(stream, [=] { return stream->queue.empty(); });
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return advance(stream, 1) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock(runtime_lock());
  enqueue(stream, [state = event->state, wanted = event->state->n_recorded,
                   recorder = event->state->stream] {
    if (state->n_done < wanted) advance(recorder, 1);
    return state->n_done >= wanted;
  });
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(runtime_lock());
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(runtime_lock());
  event->state->stream = stream;
  enqueue(stream, [state = event->state, number = ++event->state->n_recorded] {
    state->n_done = std::max(state->n_done, number);
    state->at = std::chrono::steady_clock::now();
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(runtime_lock());
  const EventState& state = *event->state;
  if (state.n_done == state.n_recorded) return cudaSuccess;
  advance(state.stream, 1);
  return state.n_done == state.n_recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto state = event->state;
  work_until(state->stream, [=] { return state->n_done == state->n_recorded; });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const Lock lock(runtime_lock());
  *milliseconds = std::chrono::duration<float, std::milli>(to->state->at - from->state->at).count();
  return cudaSuccess;
}
