// Values in GPU memory, filled and read in the order of a stream. For tests.
#pragma once
#include <cstring>
#include <span>
#include <vector>

#include "base/device/device_cuda.h"
#include "cluster/comm/gpu_copies.h"

namespace longhaul::test {

template <typename T>
class GpuValues {
 public:
  // Queues the filling; `stream` must outlive it.
  GpuValues(cuda::Stream& stream, const std::vector<T>& values)
      : stream_(stream),
        n_(values.size()),
        pinned_(values.size() * sizeof(T)),
        device_(values.size() * sizeof(T)) {
    set(values);
  }
  // Queues the filling with as many other values.
  void set(const std::vector<T>& values) {
    stream_.synchronise();  // the pinned memory may still be read
    if (n_ > 0) std::memcpy(pinned_.data(), values.data(), n_ * sizeof(T));
    cuda::queue_copy_to_gpu(stream_, device_.data(), pinned_.data(), n_ * sizeof(T));
  }
  std::span<T> span() const { return {reinterpret_cast<T*>(device_.data()), n_}; }
  std::span<std::byte> bytes() const { return {device_.data(), n_ * sizeof(T)}; }
  // What work that is queued now finds. Blocks.
  std::vector<T> values() const {
    std::vector<T> out(n_);
    cuda::copy_to_host(stream_, std::as_writable_bytes(std::span(out)), device_.data());
    return out;
  }

 private:
  cuda::Stream& stream_;
  std::size_t n_;
  cuda::PinnedBuffer pinned_;
  cuda::Buffer device_;
};

}  // namespace longhaul::test
