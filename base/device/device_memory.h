// Queues and copies on whichever device: code that goes through this header, and owns its memory
// through kernels/device_tensor.h, runs on every device. On CPUs a copy is memcpy.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/device/device.h"
#include "base/device/device_cuda.h"

namespace longhaul {

// A device of this process: the CPU, or GPU number `ordinal` of those that the process sees.
struct DeviceId {
  Device kind = Device::kCpu;
  int ordinal = 0;
  bool operator==(const DeviceId&) const = default;
};
std::string name_of(const DeviceId& device);  // "cpu", "cuda:1"

// A queue of work on a device. On a GPU: made by the thread that uses it, which keeps to that GPU.
// Not movable: handles refer to it.
class DeviceQueue {
 public:
  explicit DeviceQueue(const DeviceId& device);
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  StreamRef stream() const { return gpu_ ? gpu_->ref() : StreamRef::cpu(); }
  const DeviceId& device() const { return device_; }

 private:
  DeviceId device_;
  std::unique_ptr<cuda::Stream> gpu_;
};

// A step whose work a GPU's stream notes, to queue it as a CUDA graph if it is that of the step
// before (base/device/step_graph.h). What is not submitted when this ends is dropped. Does nothing
// on CPUs.
class NotedStep {
 public:
  explicit NotedStep(StreamRef stream);
  ~NotedStep();
  NotedStep(const NotedStep&) = delete;
  NotedStep& operator=(const NotedStep&) = delete;

 private:
  StreamRef stream_;
};
// Before memory is freed that noted work may use, and at a step's end.
void submit_noted(StreamRef stream);

// Copies between memory of the stream's device and the host's, in the order of the stream's work.
// What the host reads is there after the call; what it gives may be written again. So on a GPU they
// wait for the work before them: call them seldom, or for many pieces at once.
void copy_to_host(StreamRef stream, std::span<std::byte> to, const std::byte* from);
struct HostCopy {
  std::span<std::byte> to;
  const std::byte* from = nullptr;
};
void copy_to_host(StreamRef stream, std::span<const HostCopy> copies);
void copy_from_host(StreamRef stream, std::byte* to, std::span<const std::byte> from);
// Within the device; queued.
void copy_bytes(StreamRef stream, std::byte* to, const std::byte* from, std::size_t n);
void set_to_zero(StreamRef stream, std::byte* to, std::size_t n);

}  // namespace longhaul
