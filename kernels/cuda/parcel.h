// Parts of one upload: a copy each would cost more than its bytes.
#pragma once
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace longhaul::cuda {

class Parcel {
 public:
  // Where the part begins; it is aligned to 16 bytes.
  template <typename T>
  std::size_t add(const std::vector<T>& values) {
    const std::size_t at = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(at + values.size() * sizeof(T));
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
