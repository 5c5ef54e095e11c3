#include "cluster/comm/gpu_copies.h"

#include <cuda_runtime.h>

#include <cstring>
#include <string>

#include "base/error.h"

namespace longhaul::cuda {
namespace {

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) [[unlikely]] {
    throw Error(ErrorCode::kCuda, std::string(what) + ": " + cudaGetErrorName(result) + ": " +
                                      cudaGetErrorString(result));
  }
}

cudaStream_t queue_of(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

}  // namespace

bool is_gpu_memory(const void* data) {
  cudaPointerAttributes attributes;
  check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeDevice;
}

void queue_copy_to_host(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, queue_of(stream)),
        "cudaMemcpyAsync to pinned memory");
}

void queue_copy_to_gpu(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, queue_of(stream)),
        "cudaMemcpyAsync from pinned memory");
}

int current_gpu() {
  int ordinal = 0;
  check(cudaGetDevice(&ordinal), "cudaGetDevice");
  return ordinal;
}

GpuId gpu_id(int ordinal) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  GpuId id;
  static_assert(sizeof properties.uuid == sizeof id.bytes);
  std::memcpy(id.bytes.data(), &properties.uuid, sizeof id.bytes);
  return id;
}

}  // namespace longhaul::cuda
