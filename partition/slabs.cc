#include "partition/slabs.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace longhaul {

Extent blocks_of(Extent tokens, std::int64_t block_size) {
  if (tokens.empty()) return {tokens.begin / block_size, tokens.begin / block_size};
  return {tokens.begin / block_size, ceil_div(tokens.end, block_size)};
}

std::vector<Slab> slabs_of_chunk(std::span<const std::int64_t> token_share, Extent tokens,
                                 std::int64_t block_size) {
  const auto n_ranks = static_cast<std::int64_t>(token_share.size());
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
    const std::int64_t owner = i < n_ranks ? i : 2 * n_ranks - 1 - i;
    weight += token_share[static_cast<std::size_t>(owner)];
    std::int64_t edge = blocks.begin + (2 * blocks.size() * weight + total) / (2 * total);
    edge = std::min(edge, blocks.end - 1);  // the last block is ring position 0's
    const bool last = i == 2 * n_ranks - 1;
    const std::int64_t end = last ? tokens.end : std::max(begin, edge * block_size);
    slabs[static_cast<std::size_t>(i)] = {.owner = owner, .tokens = {begin, end}};
    begin = end;
  }
  return slabs;
}

std::vector<HaloPiece> halo_of_slab(std::span<const Slab> slabs, std::size_t i, std::int64_t recent,
                                    std::int64_t block_size) {
  std::vector<HaloPiece> pieces;
  const Slab& slab = slabs[i];
  if (slab.tokens.empty() || recent <= 1) return pieces;
  const std::int64_t first_needed = std::max<std::int64_t>(0, slab.tokens.begin - recent + 1);
  const std::int64_t chunk_begin = slabs.front().tokens.begin;
  if (first_needed < chunk_begin) {
    // The chunk may start inside a block: that block's older tokens are history, too.
    pieces.push_back({HaloPiece::kHistory, blocks_of({first_needed, chunk_begin}, block_size)});
  }
  std::size_t from = i;
  while (from > 0 && slabs[from - 1].tokens.end > first_needed) --from;
  for (; from < i; ++from) {
    const Extent tokens = {std::max(first_needed, slabs[from].tokens.begin),
                           slabs[from].tokens.end};
    if (tokens.empty() || slabs[from].owner == slab.owner) continue;
    pieces.push_back({static_cast<std::int64_t>(from), blocks_of(tokens, block_size)});
  }
  return pieces;
}

}  // namespace longhaul
