// Tensors in memory of whichever device a stream works on.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/device/device.h"
#include "base/device/device_cuda.h"
#include "kernels/tensor.h"

namespace longhaul {

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

}  // namespace longhaul
