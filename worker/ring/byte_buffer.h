// Device memory for blocks and queries on their way, reused from layer to layer: it grows and
// stays.
#pragma once
#include <cstddef>

#include "base/device/device_memory.h"
#include "kernels/device_tensor.h"

namespace longhaul {

class ByteBuffer {
 public:
  // Room for n bytes, aligned to 64, always of the same stream's device; contents are lost when it
  // grows.
  std::byte* reserve(StreamRef stream, std::size_t n) {
    if (n > capacity()) {
      submit_noted(stream);  // it may use the old memory
      memory_ = {};          // frees first
      memory_ = DeviceTensor<std::byte, 1>(stream, {static_cast<std::int64_t>(n)});
    }
    return memory_.data();
  }
  std::byte* data() { return memory_.data(); }
  std::size_t capacity() const { return memory_.bytes(); }

 private:
  DeviceTensor<std::byte, 1> memory_;
};

}  // namespace longhaul
