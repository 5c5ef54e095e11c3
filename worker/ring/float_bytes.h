// Floats as the bytes that links carry.
#pragma once
#include <cstddef>
#include <cstdint>

namespace longhaul {

inline std::size_t float_bytes(std::int64_t n_floats) {
  return static_cast<std::size_t>(n_floats) * sizeof(float);
}
inline std::byte* as_bytes(float* at) { return reinterpret_cast<std::byte*>(at); }
inline const std::byte* as_bytes(const float* at) { return reinterpret_cast<const std::byte*>(at); }

}  // namespace longhaul
