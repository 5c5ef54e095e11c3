#include "cluster/comm/gpu_peers.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/device/check_cuda.h"
#include "base/device/log_cuda.h"
#include "base/error.h"

namespace longhaul::cuda {
namespace {

// For what may fail: then something else is done, and the next call has not failed.
void check_try(cudaError_t result, std::string_view what) {
  if (result != cudaSuccess) static_cast<void>(cudaGetLastError());
  check_cuda(result, what);
}

int gpu_of_thread() {
  int ordinal = 0;
  check_cuda(cudaGetDevice(&ordinal), "cudaGetDevice");
  return ordinal;
}

// Copies between GPUs of one process pass by the host where they have not been allowed to reach
// each other.
void reach_gpu(int other) {
  const int own = gpu_of_thread();
  if (other == own) return;
  int is_possible = 0;
  check_try(cudaDeviceCanAccessPeer(&is_possible, own, other), "cudaDeviceCanAccessPeer");
  if (is_possible == 0) {
    throw Error(ErrorCode::kUnsupported, fmt::format("GPU {} cannot reach GPU {}", own, other));
  }
  const cudaError_t result = cudaDeviceEnablePeerAccess(other, 0);
  if (result == cudaErrorPeerAccessAlreadyEnabled) {
    static_cast<void>(cudaGetLastError());
  } else {
    check_try(result, "cudaDeviceEnablePeerAccess");
  }
}

// cuStreamWriteValue32 and cuStreamWaitValue32, as cuda.h declares them; and its constants.
using StreamValue = int (*)(cudaStream_t stream, unsigned long long address, std::uint32_t value,
                            unsigned flags);
constexpr unsigned kAtLeast = 0;             // CU_STREAM_WAIT_VALUE_GEQ
constexpr unsigned kFlushWrites = 1U << 30;  // CU_STREAM_WAIT_VALUE_FLUSH

// Null where the driver does not have it.
void* driver_function(const char* name) {
  void* function = nullptr;
#if CUDART_VERSION >= 12050
  constexpr unsigned kVersion = 12000;
  const cudaError_t result =
      cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault);
#else
  const cudaError_t result = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault);
#endif
  if (result == cudaSuccess) return function;
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

void call(void* function, const char* name, const Stream& stream, const std::byte* word,
          std::uint32_t value, unsigned flags) {
  const int result =
      reinterpret_cast<StreamValue>(function)(static_cast<cudaStream_t>(stream.native()),
                                              reinterpret_cast<std::uintptr_t>(word), value, flags);
  if (result != 0) throw Error(ErrorCode::kCuda, fmt::format("{}: error {}", name, result));
}

}  // namespace

SharedBuffer::SharedBuffer(std::size_t bytes) {
  void* data = nullptr;
  check_try(cudaMalloc(&data, bytes), "cudaMalloc");
  data_ = static_cast<std::byte*>(data);
}
SharedBuffer::~SharedBuffer() {
  if (data_ != nullptr) log_failure(cudaFree(data_), "cudaFree");
}
SharedBuffer::SharedBuffer(SharedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)) {}
SharedBuffer& SharedBuffer::operator=(SharedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

MemoryTicket SharedBuffer::ticket() const {
  MemoryTicket ticket{
      .process = ::getpid(), .gpu = gpu_of_thread(), .address = data_, .handle = {}};
  cudaIpcMemHandle_t handle;
  check_try(cudaIpcGetMemHandle(&handle, data_), "cudaIpcGetMemHandle");
  static_assert(sizeof handle == sizeof ticket.handle);
  std::memcpy(ticket.handle.data(), &handle, sizeof handle);
  return ticket;
}

OpenedBuffer::OpenedBuffer(const MemoryTicket& ticket) {
  if (ticket.process == ::getpid()) {
    reach_gpu(static_cast<int>(ticket.gpu));
    data_ = ticket.address;
    return;
  }
  cudaIpcMemHandle_t handle;
  std::memcpy(&handle, ticket.handle.data(), sizeof handle);
  void* data = nullptr;
  check_try(cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess),
            "cudaIpcOpenMemHandle");
  data_ = static_cast<std::byte*>(data);
  is_mapped_ = true;
}
OpenedBuffer::~OpenedBuffer() {
  if (is_mapped_) log_failure(cudaIpcCloseMemHandle(data_), "cudaIpcCloseMemHandle");
}
OpenedBuffer::OpenedBuffer(OpenedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      is_mapped_(std::exchange(other.is_mapped_, false)) {}
OpenedBuffer& OpenedBuffer::operator=(OpenedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(is_mapped_, other.is_mapped_);
  return *this;
}

GpuWindow::GpuWindow(void* memory, std::size_t bytes) {
  check_try(cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
            "cudaHostRegister");
  memory_ = memory;
  void* on_gpu = nullptr;
  const cudaError_t result = cudaHostGetDevicePointer(&on_gpu, memory, 0);
  if (result != cudaSuccess) log_failure(cudaHostUnregister(memory), "cudaHostUnregister");
  check_try(result, "cudaHostGetDevicePointer");
  on_gpu_ = static_cast<std::byte*>(on_gpu);
}
GpuWindow::~GpuWindow() {
  if (memory_ != nullptr) log_failure(cudaHostUnregister(memory_), "cudaHostUnregister");
}
GpuWindow::GpuWindow(GpuWindow&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      on_gpu_(std::exchange(other.on_gpu_, nullptr)) {}
GpuWindow& GpuWindow::operator=(GpuWindow&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(on_gpu_, other.on_gpu_);
  return *this;
}

std::optional<StreamWords> StreamWords::find(std::string& why) {
  StreamWords words;
  words.write_ = driver_function("cuStreamWriteValue32");
  words.wait_ = driver_function("cuStreamWaitValue32");
  if (words.write_ == nullptr || words.wait_ == nullptr) {
    why = "the driver's streams cannot wait for words in memory";
    return std::nullopt;
  }
  int flushes = 0;
  check_try(cudaDeviceGetAttribute(&flushes, cudaDevAttrCanFlushRemoteWrites, gpu_of_thread()),
            "cudaDeviceGetAttribute");
  words.wait_flags_ = flushes != 0 ? kAtLeast | kFlushWrites : kAtLeast;
  return words;
}

void StreamWords::queue_write(Stream& stream, std::byte* word, std::uint32_t value) const {
  call(write_, "cuStreamWriteValue32", stream, word, value, 0);
}

void StreamWords::queue_wait(Stream& stream, const std::byte* word, std::uint32_t value) const {
  call(wait_, "cuStreamWaitValue32", stream, word, value, wait_flags_);
}

}  // namespace longhaul::cuda
