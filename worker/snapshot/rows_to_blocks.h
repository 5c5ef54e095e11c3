// Which rows of a piece go where in cache blocks. Private to this folder; pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace longhaul {

// A block to be filled, or neighbouring tokens of it: zero but for what is written.
struct BlockToFill {
  Extent positions;             // of the tokens
  std::byte* data = nullptr;    // of the block, on the host
  std::int64_t first_slot = 0;  // of the first token
};

// Neighbouring rows of a piece that go to neighbouring slots of a block.
struct RowsToBlock {
  Extent rows;
  Extent slots;
  std::byte* block = nullptr;
};

// What the blocks, which ascend, take of those rows of a piece that are in `rows`; in their order.
// `runs` are the positions of all of the piece's rows.
std::vector<RowsToBlock> rows_to_blocks(std::span<const Extent> runs, Extent rows,
                                        std::span<const BlockToFill> blocks);

}  // namespace longhaul
