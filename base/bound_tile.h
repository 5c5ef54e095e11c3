// How the bounds of pages of keys lie in memory: kernels/page_bound.h makes and reads them,
// planning counts with them. Pages lie in tiles of kBoundPages, side by side, so that a vector
// holds one channel of several:
//   [head_dim][smallest, largest][kBoundPages]
#pragma once
#include <cstdint>

namespace longhaul {

inline constexpr std::int64_t kBoundPages = 16;  // of a tile

constexpr std::int64_t bound_tile_floats(std::int64_t head_dim) {
  return 2 * head_dim * kBoundPages;
}

}  // namespace longhaul
