// Where an operator runs: a device kind and a queue on it. Small value handles; the owners are in
// kernels/.
#pragma once
#include <cstdint>

namespace longhaul {

enum class Device : std::uint8_t { kCpu, kCuda };

// Names a queue of work on a device; does not own it. On CPUs work is done before the call returns.
class StreamRef {
 public:
  static StreamRef cpu() { return StreamRef(Device::kCpu, nullptr); }
  // `stream` is a cudaStream_t and must not be null: the legacy default stream serialises
  // everything.
  static StreamRef cuda(void* stream) { return StreamRef(Device::kCuda, stream); }
  Device device() const { return device_; }
  void* native() const { return native_; }

 private:
  StreamRef(Device device, void* native) : device_(device), native_(native) {}
  Device device_;
  void* native_;
};

}  // namespace longhaul
