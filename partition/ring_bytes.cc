#include "partition/ring_bytes.h"

#include <algorithm>
#include <numeric>

namespace longhaul {
namespace {

constexpr std::int64_t kF32 = 4;

// Blocks of all slabs of each ring position.
std::vector<std::int64_t> own_blocks(std::span<const Slab> slabs, std::int64_t block_size) {
  std::vector<std::int64_t> blocks(slabs.size() / 2, 0);
  for (const Slab& slab : slabs) {
    blocks[static_cast<std::size_t>(slab.owner)] += blocks_of(slab.tokens, block_size).size();
  }
  return blocks;
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

}  // namespace

std::vector<std::int64_t> chunk_key_bytes_sent(std::span<const Slab> slabs,
                                               std::int64_t n_all_heads, const KvFormat& kv) {
  const std::vector<std::int64_t> own = own_blocks(slabs, kv.block_size);
  const std::int64_t all = sum(own);
  std::vector<std::int64_t> sent(own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    sent[i] = (all - own[(i + 1) % own.size()]) * n_all_heads * kv.block_bytes();
  }
  return sent;
}

std::vector<std::int64_t> halo_bytes_sent(std::span<const Slab> slabs, const LayerHeads& heads,
                                          const KvFormat& kv) {
  std::vector<std::int64_t> sent(slabs.size() / 2, 0);
  if (heads.n_windowed == 0) return sent;
  for (std::size_t i = 0; i < slabs.size(); ++i) {
    for (const HaloPiece& piece : halo_of_slab(slabs, i, heads.window.recent, kv.block_size)) {
      if (piece.from_slab == HaloPiece::kHistory) continue;
      const auto owner = slabs[static_cast<std::size_t>(piece.from_slab)].owner;
      sent[static_cast<std::size_t>(owner)] +=
          piece.blocks.size() * heads.n_windowed * kv.block_bytes();
    }
  }
  return sent;
}

ChunkTraffic chunk_traffic(const Stage& stage, const ModelSpec& spec, const LayerHeads& heads,
                           const KvFormat& kv, Extent tokens) {
  ChunkTraffic traffic;
  const auto n_ranks = static_cast<std::int64_t>(stage.ring.size());
  if (n_ranks == 1) return traffic;
  const std::vector<Slab> slabs = slabs_of_chunk(stage.token_share, tokens, kv.block_size);
  traffic.chunk_keys = sum(chunk_key_bytes_sent(slabs, heads.n_all, kv));
  traffic.halo = sum(halo_bytes_sent(slabs, heads, kv));
  const std::int64_t hops = n_ranks - 1;
  traffic.history_keys =
      hops * heads.n_all * ceil_div(tokens.begin, kv.block_size) * kv.block_bytes();
  const std::int64_t query = spec.head_dim * kF32;
  const std::int64_t state = (spec.head_dim + 2) * kF32;
  if (tokens.begin > 0) {
    // The query makes P-1 hops with its partial sums, which then go one more hop, home.
    traffic.history_queries =
        tokens.size() * heads.n_all * spec.gqa_group() * (hops * (query + state) + state);
  }
  if (heads.n_windowed > 0) {
    const std::int64_t window_block_bytes = heads.n_windowed * kv.block_bytes();
    for (std::size_t i = 0; i < slabs.size(); ++i) {
      for (const HaloPiece& piece : halo_of_slab(slabs, i, heads.window.recent, kv.block_size)) {
        if (piece.from_slab != HaloPiece::kHistory) continue;
        traffic.window_homes += piece.blocks.size() * window_block_bytes;
      }
    }
    const std::int64_t newest = std::max(tokens.begin, tokens.end - heads.window.recent + 1);
    traffic.window_homes +=
        blocks_of({newest, tokens.end}, kv.block_size).size() * window_block_bytes;
    const Extent sink = {tokens.begin, std::min(tokens.end, heads.window.sink)};
    if (!sink.empty()) {
      traffic.sink = hops * blocks_of(sink, kv.block_size).size() * window_block_bytes;
    }
  }
  return traffic;
}

DecodeTraffic decode_traffic(const ModelSpec& spec, std::int64_t n_ranks, std::int64_t batch_size) {
  DecodeTraffic traffic;
  if (n_ranks == 1) return traffic;
  traffic.gather_bytes = batch_size * spec.n_heads * 2 * kF32;
  traffic.reduce_bytes = batch_size * spec.d_model * kF32;
  const std::int64_t hops = n_ranks - 1;
  traffic.total = n_ranks * hops * traffic.gather_bytes + 2 * (2 * hops * traffic.reduce_bytes);
  return traffic;
}

}  // namespace longhaul
