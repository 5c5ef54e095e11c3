#include "partition/slabs.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace longhaul {

Extent blocks_of(Extent tokens, std::int64_t block_size) {
  if (tokens.empty()) return {tokens.begin / block_size, tokens.begin / block_size};
  return {tokens.begin / block_size, ceil_div(tokens.end, block_size)};
}

std::vector<Slab> slabs_of_chunk(const IndexedVector<RingPos, std::int64_t>& token_share,
                                 Extent tokens, std::int64_t block_size) {
  const std::int64_t n_ranks = token_share.n();
  require(n_ranks > 0 && block_size > 0 && tokens.begin >= 0 && !tokens.empty(),
          "slabs_of_chunk: needs ranks, tokens and a block size");
  // Both slabs of a rank weigh its share, so the whole weighs twice their sum.
  const std::int64_t total =
      2 * std::accumulate(token_share.begin(), token_share.end(), std::int64_t{0});
  require(total > 0, "slabs_of_chunk: all token shares are 0");
  const Extent blocks = blocks_of(tokens, block_size);

  std::vector<Slab> slabs(static_cast<std::size_t>(2 * n_ranks));
  std::int64_t weight = 0;
  std::int64_t begin = tokens.begin;
  for (std::int64_t i = 0; i < 2 * n_ranks; ++i) {
    const RingPos owner{i < n_ranks ? i : 2 * n_ranks - 1 - i};
    weight += token_share[owner];
    std::int64_t edge = blocks.begin + (2 * blocks.size() * weight + total) / (2 * total);
    edge = std::min(edge, blocks.end - 1);  // the last block is ring position 0's
    const bool last = i == 2 * n_ranks - 1;
    const std::int64_t end = last ? tokens.end : std::max(begin, edge * block_size);
    slabs[static_cast<std::size_t>(i)] = {.owner = owner, .tokens = {begin, end}};
    begin = end;
  }
  return slabs;
}

IndexedVector<RingPos, std::vector<Extent>> slabs_by_owner(std::span<const Slab> slabs) {
  IndexedVector<RingPos, std::vector<Extent>> made(slabs.size() / 2);
  for (const Slab& slab : slabs) {
    if (slab.tokens.empty()) continue;
    made[slab.owner].push_back(slab.tokens);
  }
  return made;
}

std::vector<Extent> block_pieces(Extent tokens, std::int64_t block_size) {
  std::vector<Extent> pieces;
  for (std::int64_t begin = tokens.begin; begin < tokens.end;) {
    const std::int64_t end = std::min(tokens.end, (begin / block_size + 1) * block_size);
    pieces.push_back({begin, end});
    begin = end;
  }
  return pieces;
}

}  // namespace longhaul
