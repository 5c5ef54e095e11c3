// How a prefill chunk is cut over a ring of P ranks: 2P slabs in token order, of which the rank at
// ring position r owns slab r and slab 2P-1-r. Widths follow the token shares; the two slabs of a
// rank together see about the same history as those of any other, so the causal mask costs no
// balance. Edges lie on the document's block edges, so a block is made by one rank.
//
// 2 ranks, shares 1:1, blocks of 4 tokens, chunk [0, 30):
//   slab    0       1       2         3
//   tokens  [0,8)   [8,16)  [16,24)   [24,30)     the last block is partial
//   owner   0       1       1         0
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/indexed_vector.h"

namespace longhaul {

struct Slab {
  RingPos owner{0};
  Extent tokens;  // positions in the sequence; may be empty
  bool operator==(const Slab&) const = default;
};

// The 2P slabs of the chunk that covers positions `tokens`, P = token_share.size(). The last block
// of a chunk always lies with ring position 0 (slab 2P-1), whatever its share, so the chunk's last
// token is where everybody knows. A chunk that starts inside a block (the first tokens of a fork)
// counts that block like a whole one.
std::vector<Slab> slabs_of_chunk(const IndexedVector<RingPos, std::int64_t>& token_share,
                                 Extent tokens, std::int64_t block_size);

// The slabs of each ring position that hold tokens, in token order.
IndexedVector<RingPos, std::vector<Extent>> slabs_by_owner(std::span<const Slab> slabs);

// The blocks (position / block_size) that positions `tokens` touch.
Extent blocks_of(Extent tokens, std::int64_t block_size);

// The parts of `tokens` by block, ascending.
std::vector<Extent> block_pieces(Extent tokens, std::int64_t block_size);

}  // namespace longhaul
