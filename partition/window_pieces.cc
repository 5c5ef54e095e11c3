#include "partition/window_pieces.h"

#include <algorithm>

namespace longhaul {
namespace {

// Adds the numbers of the blocks that `tokens` touch.
void add_blocks(Extent tokens, std::int64_t block_size, std::vector<std::int64_t>& blocks) {
  if (tokens.empty()) return;
  const Extent range = blocks_of(tokens, block_size);
  for (std::int64_t b = range.begin; b < range.end; ++b) blocks.push_back(b);
}

Extent intersection(Extent a, Extent b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// The parts in `range` of these blocks, ascending, each once.
std::vector<Extent> pieces_of(std::vector<std::int64_t> blocks, Extent range,
                              std::int64_t block_size) {
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  std::vector<Extent> pieces;
  for (const std::int64_t b : blocks) {
    pieces.push_back(intersection({b * block_size, (b + 1) * block_size}, range));
  }
  return pieces;
}

// The pieces of the tokens in `range` that the queries see.
std::vector<Extent> pieces_seen(const WindowChunk& chunk, std::span<const Extent> queries,
                                Extent range) {
  std::vector<std::int64_t> blocks;
  for (const Extent& q : queries) {
    if (q.empty()) continue;
    const Extent sink{0, std::min(chunk.window.sink, q.end)};
    const Extent recent{std::max<std::int64_t>(0, q.begin - chunk.window.recent + 1), q.end};
    add_blocks(intersection(sink, range), chunk.block_size, blocks);
    add_blocks(intersection(recent, range), chunk.block_size, blocks);
  }
  return pieces_of(std::move(blocks), range, chunk.block_size);
}

// Who makes the token.
RingPos maker_of(const WindowChunk& chunk, std::int64_t token) {
  const auto slab = std::partition_point(chunk.slabs.begin(), chunk.slabs.end(),
                                         [&](const Slab& s) { return s.tokens.end <= token; });
  return slab->owner;
}

// Those pieces that `maker` makes.
std::vector<Extent> made_by(const WindowChunk& chunk, RingPos maker, std::vector<Extent> pieces) {
  std::erase_if(pieces, [&](const Extent& p) { return maker_of(chunk, p.begin) != maker; });
  return pieces;
}

std::vector<Extent> merged(const std::vector<Extent>& a, const std::vector<Extent>& b) {
  std::vector<Extent> all(a);
  all.insert(all.end(), b.begin(), b.end());
  std::sort(all.begin(), all.end(), [](Extent x, Extent y) { return x.begin < y.begin; });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

std::vector<Extent> kept_pieces(const WindowChunk& chunk) {
  const Extent tokens = chunk.tokens();
  const std::int64_t next_query = tokens.end;
  std::vector<std::int64_t> blocks;
  add_blocks(intersection({0, chunk.window.sink}, tokens), chunk.block_size, blocks);
  const Extent recent{std::max<std::int64_t>(0, next_query - chunk.window.recent + 1), next_query};
  add_blocks(intersection(recent, tokens), chunk.block_size, blocks);
  if (tokens.end % chunk.block_size != 0) blocks.push_back(tokens.end / chunk.block_size);
  return pieces_of(std::move(blocks), tokens, chunk.block_size);
}

std::vector<WindowPiece> window_pieces(const WindowChunk& chunk,
                                       std::span<const RingPos> home_positions, RingPos from,
                                       RingPos to) {
  const auto& queries = chunk.queries[to];
  const Extent tokens = chunk.tokens();
  const std::vector<Extent> history = pieces_seen(chunk, queries, {0, tokens.begin});
  const std::vector<Extent> seen = made_by(chunk, from, pieces_seen(chunk, queries, tokens));
  const std::vector<Extent> seen_or_kept = merged(seen, made_by(chunk, from, kept_pieces(chunk)));

  std::vector<WindowPiece> pieces;
  for (std::size_t i = 0; i < home_positions.size(); ++i) {
    const auto head = static_cast<std::int64_t>(i);
    if (home_positions[i] == from) {
      for (const Extent& piece : history) pieces.push_back({head, piece, /*from_home=*/true});
    }
    for (const Extent& piece : home_positions[i] == to ? seen_or_kept : seen) {
      pieces.push_back({head, piece, /*from_home=*/false});
    }
  }
  return pieces;
}

IndexedVector<RingPos, std::int64_t> window_bytes_sent(const WindowChunk& chunk,
                                                       std::span<const RingPos> home_positions,
                                                       const KvFormat& kv) {
  const Extent tokens = chunk.tokens();
  const auto n_heads = static_cast<std::int64_t>(home_positions.size());
  IndexedVector<RingPos, std::int64_t> sent(chunk.queries.size(), 0);
  const auto add = [&](RingPos from, RingPos to, std::size_t n_blocks) {
    if (from == to) return;
    sent[from] += static_cast<std::int64_t>(n_blocks) * kv.block_bytes();
  };
  for (const RingPos to : chunk.queries.ids()) {
    const auto history = pieces_seen(chunk, chunk.queries[to], {0, tokens.begin});
    for (const RingPos home : home_positions) add(home, to, history.size());
    const auto seen = pieces_seen(chunk, chunk.queries[to], tokens);
    for (const Extent& piece : seen) {
      add(maker_of(chunk, piece.begin), to, static_cast<std::size_t>(n_heads));
    }
    const auto n_homes = std::count(home_positions.begin(), home_positions.end(), to);
    for (const Extent& piece : kept_pieces(chunk)) {
      if (std::find(seen.begin(), seen.end(), piece) != seen.end()) continue;
      add(maker_of(chunk, piece.begin), to, static_cast<std::size_t>(n_homes));
    }
  }
  return sent;
}

}  // namespace longhaul
