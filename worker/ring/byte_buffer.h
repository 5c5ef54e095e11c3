// Memory for blocks and queries on their way, reused from layer to layer: it grows and stays.
#pragma once
#include <cstddef>

#include "kernels/tensor.h"

namespace longhaul {

class ByteBuffer {
 public:
  // Room for n bytes, aligned to 64; contents are lost when it grows.
  std::byte* reserve(std::size_t n) {
    if (n > capacity()) memory_ = Tensor<std::byte, 1>({static_cast<std::int64_t>(n)});
    return memory_.data();
  }
  std::byte* data() { return memory_.data(); }
  std::size_t capacity() const {
    return memory_.data() == nullptr ? 0 : static_cast<std::size_t>(memory_.dim(0));
  }

 private:
  Tensor<std::byte, 1> memory_;
};

}  // namespace longhaul
