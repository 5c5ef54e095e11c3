// The blocks of one head by number, in a GPU's memory: a decode step says how many there are and
// the GPU finds which. Block i holds positions from first_position + i block_size on; all blocks
// but the last are full.
//
// Forks of a document have its blocks in common, and name the same memory for them:
//
//   parent   shared -> d0 d1 d2 d3     own -> p0 p1       n_shared 4, blocks d0 d1 d2 d3 p0 p1
//   child    shared -> (the same)      own -> c0          n_shared 4, blocks d0 d1 d2 d3 c0
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/ids.h"

namespace longhaul {

struct BlockTable {
  const std::byte* const* shared = nullptr;  // GPU memory, of blocks [0, n_shared)
  const std::byte* const* own = nullptr;     // the same, of those from n_shared on
  std::int64_t n_shared = 0;
  std::int64_t first_position = 0;  // of block 0
  std::int64_t n_tokens = 0;        // of all blocks, those that are gone included
  Extent gone;  // numbers of blocks that are no longer there: no query sees them
};

}  // namespace longhaul
