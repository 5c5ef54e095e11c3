// Runs a test suite once with each instruction set that this machine has and once on a GPU, where
// it is skipped visibly if there is none; and memory for tensors there.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/device/device_cuda.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/threads.h"
#include "kernels/softmax_state.h"
#include "tests/unit/kernels/each_isa.h"

namespace longhaul::test {

struct ComputeDevice {
  Device device = Device::kCpu;
  Isa isa = Isa::kBaseline;  // of a CPU
};

inline std::vector<ComputeDevice> compute_devices() {
  std::vector<ComputeDevice> out;
  for (const Isa isa : supported_isas()) out.push_back({Device::kCpu, isa});
  out.push_back({Device::kCuda, {}});
  return out;
}

inline std::string device_test_name(const testing::TestParamInfo<ComputeDevice>& info) {
  return info.param.device == Device::kCpu ? std::string(name_of(info.param.isa)) : "cuda";
}

class EachDevice : public testing::TestWithParam<ComputeDevice> {
 protected:
  void SetUp() override {
    if (GetParam().device == Device::kCpu) return set_active_isa(GetParam().isa);
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_no_device();
    gpu_ = std::make_unique<cuda::Stream>(0);
  }
  void TearDown() override {
    set_active_isa(supported_isas().back());
    set_kernel_threads(0);
  }
  StreamRef stream() const { return gpu_ ? gpu_->ref() : StreamRef::cpu(); }

 private:
  std::unique_ptr<cuda::Stream> gpu_;
};

// NOLINTNEXTLINE: a macro because GoogleTest's is one
#define LONGHAUL_ON_EACH_DEVICE(Suite)                                                            \
  INSTANTIATE_TEST_SUITE_P(Device, Suite, testing::ValuesIn(::longhaul::test::compute_devices()), \
                           ::longhaul::test::device_test_name)

// Values in the memory of a stream's device, aligned to 64 bytes.
template <typename T>
class Memory {
 public:
  Memory(StreamRef stream, std::span<const T> values)
      : stream_(stream), n_(static_cast<std::int64_t>(values.size())) {
    if (stream.device() == Device::kCuda) {
      gpu_ = cuda::Buffer(values.size_bytes());
    } else {
      cpu_ = Tensor<T, 1>({n_});
    }
    write(values);
  }
  Memory(StreamRef stream, const std::vector<T>& values)
      : Memory(stream, std::span<const T>(values)) {}
  Memory(StreamRef stream, std::int64_t n, T value = {})
      : Memory(stream, std::vector<T>(static_cast<std::size_t>(n), value)) {}

  T* data() const {
    return gpu_.data() != nullptr ? reinterpret_cast<T*>(gpu_.data()) : const_cast<T*>(cpu_.data());
  }
  std::int64_t size() const { return n_; }
  std::span<T> span() const { return {data(), static_cast<std::size_t>(n_)}; }

  void write(std::span<const T> values) {
    if (stream_.device() == Device::kCuda) {
      cuda::copy_to_device(stream_.cuda_stream(), gpu_.data(), std::as_bytes(values));
    } else if (!values.empty()) {
      std::memcpy(cpu_.data(), values.data(), values.size_bytes());
    }
  }
  // Waits for the stream.
  std::vector<T> values() const {
    std::vector<T> out(static_cast<std::size_t>(n_));
    if (stream_.device() == Device::kCuda) {
      cuda::copy_to_host(stream_.cuda_stream(), std::as_writable_bytes(std::span(out)),
                         gpu_.data());
    } else if (n_ > 0) {
      std::memcpy(out.data(), cpu_.data(), out.size() * sizeof(T));
    }
    return out;
  }

 private:
  StreamRef stream_;
  std::int64_t n_;
  Tensor<T, 1> cpu_;
  cuda::Buffer gpu_;
};

// A state in the memory of a stream's device.
class StateThere {
 public:
  StateThere(StreamRef stream, const SoftmaxState& from)
      : shape_(from.o.view().shape()),
        o_(stream, std::span(from.o.data(), static_cast<std::size_t>(from.o.size()))),
        m_(stream, std::span(from.m.data(), static_cast<std::size_t>(from.m.size()))),
        l_(stream, std::span(from.l.data(), static_cast<std::size_t>(from.l.size()))) {}
  SoftmaxStateView view() const {
    return {TensorView<float, 3>(o_.data(), shape_),
            TensorView<float, 2>(m_.data(), {shape_[0], shape_[1]}),
            TensorView<float, 2>(l_.data(), {shape_[0], shape_[1]})};
  }
  SoftmaxState state() const {
    SoftmaxState out(shape_[0], shape_[1], shape_[2]);
    std::ranges::copy(o_.values(), out.o.data());
    std::ranges::copy(m_.values(), out.m.data());
    std::ranges::copy(l_.values(), out.l.data());
    return out;
  }

 private:
  std::array<std::int64_t, 3> shape_;
  Memory<float> o_;
  Memory<float> m_;
  Memory<float> l_;
};

}  // namespace longhaul::test
