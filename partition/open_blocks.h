// Caches that quantise groups of tokens (KvFormat::has_open_blocks) on a ring: what of a chunk
// travels and is stored in closed blocks, and which blocks lie open between chunks. A block is made
// by one rank, since slabs are cut where blocks begin, so it is closed by one rank. Two blocks have
// tokens of other chunks: that in which the chunk begins, whose tokens so far go from their home to
// who makes the next ones, and that which the chunk leaves open, which goes to its home. Pure.
//
// blocks of 4, chunk [6, 21) in slabs    [6, 8) [8, 16) [16, 21)
//   stored slabs                         [4, 8) [8, 16) [16, 20)
//   begun block                          tokens 4 and 5, for who makes 6 and 7
//   unfinished block                     token 20, from who makes it
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "partition/kv_format.h"
#include "partition/slabs.h"

namespace longhaul {

// Of a chunk cut into `slabs`, what is stored when it is done and was not before: its tokens, or
// where there are open blocks those of the blocks that became whole, with whose last token's slab.
std::vector<Slab> stored_slabs(std::span<const Slab> slabs, const KvFormat& kv);

// Tokens of one block, and who makes those of the chunk.
struct OpenBlock {
  Extent tokens;
  RingPos maker;
  bool operator==(const OpenBlock&) const = default;
};
// Tokens before the chunk in the block in which it begins; none where it begins with a block, or
// where there are no open blocks.
std::optional<OpenBlock> begun_block(std::span<const Slab> slabs, const KvFormat& kv);
// The chunk's tokens in the block that it leaves open; none likewise.
std::optional<OpenBlock> unfinished_block(std::span<const Slab> slabs, const KvFormat& kv);

}  // namespace longhaul
