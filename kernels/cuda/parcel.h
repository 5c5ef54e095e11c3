// Parts of one upload: a copy each would cost more than its bytes. Parts grow in strides, so that
// their places, and the grids of kernels with a thread block for each element, stay the same for
// many steps (base/device/step_graph.h): there are zeros behind the elements, which kernels skip.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace longhaul::cuda {

// n or up to an eighth more, at least a multiple of 8. 0 stays 0.
constexpr std::size_t with_room(std::size_t n) {
  const std::size_t stride = std::max<std::size_t>(8, std::bit_floor(n) / 8);
  return (n + stride - 1) / stride * stride;
}

class Parcel {
 public:
  // Where the part begins; it is aligned to 16 bytes and has with_room(values.size()) elements.
  template <typename T>
  std::size_t add(const std::vector<T>& values) {
    const std::size_t at = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(at + with_room(values.size()) * sizeof(T));
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(T));
    return at;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// A part of the parcel that was uploaded to `base`.
template <typename T>
const T* part(const std::byte* base, std::size_t at) {
  return reinterpret_cast<const T*>(base + at);
}

}  // namespace longhaul::cuda
