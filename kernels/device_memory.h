// Memory on whichever device a stream works on, and copies between it and the host: code that owns
// tensors through this header runs on every device. On CPUs it is plain memory and memcpy.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/device.h"
#include "kernels/device_cuda.h"
#include "kernels/tensor.h"

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
// before (kernels/step_graph.h). What is not submitted when this ends is dropped. Does nothing on
// CPUs.
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

// Owns a contiguous tensor on a stream's device, aligned to 64 bytes or more; what it holds at
// first is not defined. Move-only. May be freed while work on it is queued: a GPU finishes that
// first.
template <typename T, int kRank>
class DeviceTensor {
 public:
  using Shape = std::array<std::int64_t, kRank>;
  DeviceTensor() = default;
  // Throws kOutOfMemory where a GPU has too little, std::bad_alloc where the host has.
  DeviceTensor(StreamRef stream, const Shape& shape) : shape_(shape) {
    if (stream.device() == Device::kCpu) {
      host_ = Tensor<T, kRank>(shape);
    } else {
      gpu_ = cuda::Buffer(static_cast<std::size_t>(size()) * sizeof(T));
    }
  }

  T* data() const {
    return gpu_.data() != nullptr ? reinterpret_cast<T*>(gpu_.data())
                                  : const_cast<T*>(host_.data());
  }
  TensorView<T, kRank> view() const { return {data(), shape_}; }
  std::int64_t dim(int i) const { return shape_[static_cast<std::size_t>(i)]; }
  std::int64_t size() const { return TensorView<T, kRank>(nullptr, shape_).size(); }
  std::size_t bytes() const {
    return data() == nullptr ? 0 : static_cast<std::size_t>(size()) * sizeof(T);
  }

 private:
  Shape shape_{};
  Tensor<T, kRank> host_;
  cuda::Buffer gpu_;
};

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
