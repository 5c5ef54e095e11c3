// Streaming heads in prefill: no ring. A query sees the sink and a window only, so each rank gets
// exactly the blocks before its slabs that its queries see: those of earlier chunks from the head's
// home, those of this chunk from the ranks that make them (several when slabs are shorter than the
// window). The home gets what it is to keep of this chunk.
//
// 2 ranks, blocks of 4 tokens, sink 4, recent 5, chunk [40, 56), home at position 1:
//   slab    0: [40,44) rank 0   1: [44,48) rank 1   2: [48,52) rank 1   3: [52,56) rank 0
//   to 0    from home: block 0 (sink), block 9 (36..39); from rank 1: block 12 (48..51) for slab 3
//   to 1    from rank 0: block 10 (40..43) for slab 1; block 13 to keep (last 4 tokens: 52..55)
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/indexed_vector.h"
#include "model/heads/kept_blocks.h"
#include "partition/kv_format.h"
#include "partition/slabs.h"

namespace longhaul {

// What one chunk asks of one layer's windowed heads.
struct WindowChunk {
  std::span<const Slab> slabs;  // who makes which tokens of the chunk
  // Where the queries that each ring position asks stand; not owned, like the slabs.
  const IndexedVector<RingPos, std::vector<Extent>>& queries;
  KeyWindow window;
  std::int64_t block_size = 0;

  Extent tokens() const { return {slabs.front().tokens.begin, slabs.back().tokens.end}; }
};

struct WindowPiece {
  std::int64_t head = 0;   // index in home_positions
  Extent tokens;           // of one block
  bool from_home = false;  // tokens of earlier chunks, out of the home's cache
  bool operator==(const WindowPiece&) const = default;
};

// What ring position `from` sends to another, `to`, in the order of both; home_positions[i] is the
// ring position of head i's home. Local, pure.
std::vector<WindowPiece> window_pieces(const WindowChunk& chunk,
                                       std::span<const RingPos> home_positions, RingPos from,
                                       RingPos to);

// The pieces of the chunk that a home keeps when the chunk is done: all that a later query can see,
// and the partial last block.
std::vector<Extent> kept_pieces(const WindowChunk& chunk);

// Bytes that each ring position sends for these heads: whole blocks.
IndexedVector<RingPos, std::int64_t> window_bytes_sent(const WindowChunk& chunk,
                                                       std::span<const RingPos> home_positions,
                                                       const KvFormat& kv);

}  // namespace longhaul
