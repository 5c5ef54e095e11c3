// Where an operator runs: a device kind and a queue on it. Small value handles; the owners are in
// device_cuda.h and, for every device, in device_memory.h.
#pragma once
#include <cstdint>

namespace longhaul {

namespace cuda {
class Stream;  // base/device/device_cuda.h
}
using CudaStream = cuda::Stream;

enum class Device : std::uint8_t { kCpu, kCuda };

// Names a queue of work on a device; does not own it. On CPUs work is done before the call returns;
// on GPUs it is done in the order of the calls, after they return.
class StreamRef {
 public:
  static StreamRef cpu() { return StreamRef(Device::kCpu, nullptr); }
  // There is no default queue of a GPU: the stream's owner also holds what its operators need.
  static StreamRef cuda(CudaStream& stream) { return StreamRef(Device::kCuda, &stream); }
  Device device() const { return device_; }
  // Only where device() is kCuda.
  CudaStream& cuda_stream() const { return *stream_; }

 private:
  StreamRef(Device device, CudaStream* stream) : device_(device), stream_(stream) {}
  Device device_;
  CudaStream* stream_;
};

}  // namespace longhaul
