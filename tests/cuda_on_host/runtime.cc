// CUDA's runtime on host memory (include/cuda_runtime.h), but for graphs.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/cuda_on_host/device_memory.h"
#include "tests/cuda_on_host/fail.h"
#include "tests/cuda_on_host/streams.h"

namespace longhaul::cuda_on_host {
namespace {

struct Runtime {
  std::map<const std::byte*, std::size_t> pinned;  // host memory that was taken from CUDA
  std::set<cudaStream_t> streams;
  int n_devices = 1;
};
Runtime& runtime() {
  static Runtime the_runtime;
  return the_runtime;
}

thread_local int device_of_this_thread = 0;

bool is_pinned(const void* data) {
  const auto* at = static_cast<const std::byte*>(data);
  const auto& all = runtime().pinned;
  auto after = all.upper_bound(at);
  if (after == all.begin()) return false;
  --after;
  return at < after->first + after->second;
}

template <typename Function>
const void* address(Function* function) {
  return reinterpret_cast<const void*>(function);
}

}  // namespace

void set_device_count(int count) { runtime().n_devices = count; }

void advance_all() {
  const std::scoped_lock lock(runtime_lock());
  for (const cudaStream_t stream : runtime().streams) advance(stream, 1);
}

// A stream stops where it waits for another's event, and goes on once that one has.
void wait_for_gpu(const char* call) {
  const auto n_queued = [] {
    std::size_t n = 0;
    for (const cudaStream_t stream : runtime().streams)
      if (stream->device == device_of_this_thread) n += stream->queue.size();
    return n;
  };
  auto begin = std::chrono::steady_clock::now();
  for (std::size_t n_before = SIZE_MAX;;) {
    {
      const std::scoped_lock lock(runtime_lock());
      for (const cudaStream_t stream : runtime().streams)
        if (stream->device == device_of_this_thread) advance(stream, SIZE_MAX);
      const std::size_t n = n_queued();
      if (n == 0) return;
      if (n < n_before) begin = std::chrono::steady_clock::now();
      n_before = n;
      advance_all();
    }
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() - begin > stuck_after())
      fail(call, " waits for a GPU that waits for another rank");
  }
}

}  // namespace longhaul::cuda_on_host

using namespace longhaul::cuda_on_host;
using Lock = std::scoped_lock<std::recursive_mutex>;

// --- GPUs ---------------------------------------------------------------------------------------

const char* cudaGetErrorName(cudaError_t) { return "cuda_on_host"; }
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
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 227 << 10;
  return cudaSuccess;
}

// --- Memory -------------------------------------------------------------------------------------

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = device_memory_bytes();
  *free = *total - device_memory_taken();
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const Lock lock(runtime_lock());
  attributes->type = is_device_memory(data) ? cudaMemoryTypeDevice
                     : is_pinned(data)      ? cudaMemoryTypeHost
                                            : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  forbid_in_capture("cudaMalloc");
  wait_for_gpu("cudaMalloc");
  *data = take_device_memory(bytes);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  forbid_in_capture("cudaFree");
  wait_for_gpu("cudaFree");
  give_back_device_memory(data);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  forbid_in_capture("cudaMallocHost");
  wait_for_gpu("cudaMallocHost");
  *data = std::malloc(bytes);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  const Lock lock(runtime_lock());
  runtime().pinned[static_cast<std::byte*>(*data)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  forbid_in_capture("cudaFreeHost");
  wait_for_gpu("cudaFreeHost");
  const Lock lock(runtime_lock());
  if (runtime().pinned.erase(static_cast<std::byte*>(data)) == 0) {
    fail("pinned memory is freed that was not taken");
  }
  std::free(data);
  return cudaSuccess;
}

// Pinned memory is read and written when the stream comes to it. Other host memory is read before
// the call returns, and written before it returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const bool to_device = kind != cudaMemcpyDeviceToHost;
  const bool from_device = kind != cudaMemcpyHostToDevice;
  std::unique_lock lock(runtime_lock());
  const bool reads_now = !from_device && !is_pinned(from);
  const bool waits = !to_device && !is_pinned(to);
  if (reads_now || waits) forbid_in_capture("a copy of pageable memory");
  if (is_device_memory(to, bytes) != to_device || is_device_memory(from, bytes) != from_device) {
    fail("a copy's kind is not that of its memory");
  }
  std::vector<std::byte> kept;
  if (reads_now) {
    const auto* begin = static_cast<const std::byte*>(from);
    kept.assign(begin, begin + bytes);
  }
  queue(stream, address(cudaMemcpyAsync), [=, kept = std::move(kept)] {
    const DeviceMemoryAccess access;
    std::memmove(to, kept.empty() ? from : kept.data(), bytes);
  });
  lock.unlock();  // others may have to go on first
  return waits ? cudaStreamSynchronize(stream) : cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  queue(stream, address(cudaMemsetAsync), [=] {
    const DeviceMemoryAccess access;
    std::memset(to, value, bytes);
  });
  return cudaSuccess;
}

// --- Streams ------------------------------------------------------------------------------------

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  const Lock lock(runtime_lock());
  *stream = new CUstream_st;
  (*stream)->device = device_of_this_thread;
  (*stream)->priority = priority;
  runtime().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  forbid_in_capture("cudaStreamDestroy");
  cudaStreamSynchronize(stream);
  const Lock lock(runtime_lock());
  runtime().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  forbid_in_capture("cudaStreamSynchronize");
  work_until(stream, [=] { return stream->queue.empty(); });
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  forbid_in_capture("cudaStreamQuery");
  return ask(stream) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  forbid_in_capture("cudaStreamWaitEvent");  // which CUDA has, but nobody here needs
  const Lock lock(runtime_lock());
  enqueue(stream, [state = event->state, wanted = event->state->n_recorded,
                   recorder = event->state->stream] {
    if (state->n_done < wanted) advance(recorder, 1);
    return state->n_done >= wanted;
  });
  return cudaSuccess;
}

// --- Events -------------------------------------------------------------------------------------

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
  forbid_in_capture("cudaEventRecord");  // as cudaStreamWaitEvent
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
  forbid_in_capture("cudaEventQuery");
  const Lock lock(runtime_lock());
  const CUevent_st::State& state = *event->state;
  if (state.n_done == state.n_recorded) return cudaSuccess;
  ask(state.stream);
  return state.n_done == state.n_recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const Lock lock(runtime_lock());
  *milliseconds = std::chrono::duration<float, std::milli>(to->state->at - from->state->at).count();
  return cudaSuccess;
}
