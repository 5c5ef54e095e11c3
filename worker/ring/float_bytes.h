// Floats as the bytes that links carry.
#pragma once
#include <cstddef>

namespace longhaul {

inline std::byte* as_bytes(float* at) { return reinterpret_cast<std::byte*>(at); }
inline const std::byte* as_bytes(const float* at) { return reinterpret_cast<const std::byte*>(at); }

}  // namespace longhaul
