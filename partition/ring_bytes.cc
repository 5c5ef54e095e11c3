#include "partition/ring_bytes.h"

#include <numeric>

#include "partition/open_blocks.h"
#include "partition/sum_hops.h"
#include "partition/window_pieces.h"

namespace longhaul {
namespace {

constexpr std::int64_t kF32 = 4;

// Blocks of all slabs of each ring position.
IndexedVector<RingPos, std::int64_t> own_blocks(std::span<const Slab> slabs,
                                                std::int64_t block_size) {
  IndexedVector<RingPos, std::int64_t> blocks(slabs.size() / 2, 0);
  for (const Slab& slab : slabs) {
    blocks[slab.owner] += blocks_of(slab.tokens, block_size).size();
  }
  return blocks;
}

std::int64_t sum(const IndexedVector<RingPos, std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

// Ring positions of the homes of the layer's windowed heads, or of those of them that keep a key
// for what is gone.
enum class Windowed { kAll, kWithRest };
std::vector<RingPos> home_positions(const Plan& plan, const Stage& stage, LayerId layer,
                                    Windowed which) {
  std::vector<RingPos> positions;
  for (const KvHeadId head : IdRange<KvHeadId>(plan.heads.n_kv_heads())) {
    if (plan.heads.window(layer, head).is_unlimited()) continue;
    if (which == Windowed::kWithRest && plan.heads.at(layer, head).rest == Rest::kNothing) continue;
    positions.push_back(*stage.ring_position(stage.home_of(layer, head).shares.front().rank));
  }
  return positions;
}

}  // namespace

IndexedVector<RingPos, std::int64_t> chunk_key_bytes_sent(std::span<const Slab> slabs,
                                                          std::int64_t n_all_heads,
                                                          const KvFormat& kv) {
  const IndexedVector<RingPos, std::int64_t> own = own_blocks(slabs, kv.block_size);
  const std::int64_t all = sum(own);
  IndexedVector<RingPos, std::int64_t> sent(own.size());
  for (const RingPos i : own.ids()) {
    const RingPos next{(i.value + 1) % own.n()};
    sent[i] = (all - own[next]) * n_all_heads * kv.block_bytes();
  }
  return sent;
}

IndexedVector<RingPos, std::int64_t> open_bytes_sent(const Stage& stage,
                                                     std::span<const Slab> slabs, LayerId layer,
                                                     const KvFormat& kv) {
  IndexedVector<RingPos, std::int64_t> sent(stage.ring.size(), 0);
  const auto begun = begun_block(slabs, kv);
  const auto unfinished = unfinished_block(slabs, kv);
  for (const Home& of_head :
       stage.home[static_cast<std::size_t>(layer.value - stage.layers.begin)]) {
    const auto home = [&](const OpenBlock& block) {
      return *stage.ring_position(home_of_block(of_head, block.tokens.begin / kv.block_size));
    };
    if (begun && home(*begun) != begun->maker) sent[home(*begun)] += kv.open_block_bytes();
    if (unfinished && home(*unfinished) != unfinished->maker)
      sent[unfinished->maker] += kv.open_block_bytes();
  }
  return sent;
}

ChunkTraffic chunk_traffic(const Plan& plan, const Stage& stage, const ModelSpec& spec,
                           LayerId layer, Extent tokens) {
  ChunkTraffic traffic;
  const std::int64_t n_ranks = stage.ring.n();
  if (n_ranks == 1) return traffic;
  const KvFormat& kv = plan.kv;
  const LayerHeads heads = layer_heads(plan.heads, layer);
  const std::vector<Slab> made_slabs = slabs_of_chunk(stage.token_share, tokens, kv.block_size);
  const std::vector<Slab> slabs = stored_slabs(made_slabs, kv);
  const std::int64_t begin = slabs.front().tokens.begin;
  traffic.open_blocks = sum(open_bytes_sent(stage, made_slabs, layer, kv));
  traffic.chunk_keys = sum(chunk_key_bytes_sent(slabs, heads.n_all, kv));
  const std::int64_t hops = n_ranks - 1;
  traffic.history_keys = hops * heads.n_all * ceil_div(begin, kv.block_size) * kv.block_bytes();
  const std::int64_t query = spec.head_dim * kF32;
  const std::int64_t state = (spec.head_dim + 2) * kF32;
  if (begin > 0) {
    // The query makes P-1 hops with its partial sums, which then go one more hop, home.
    traffic.history_queries =
        tokens.size() * heads.n_all * spec.gqa_group() * (hops * (query + state) + state);
  }
  if (heads.n_windowed > 0) {
    const auto made = slabs_by_owner(made_slabs);
    traffic.windows = sum(window_bytes_sent(
        {.slabs = slabs, .queries = made, .window = heads.window, .block_size = kv.block_size},
        home_positions(plan, stage, layer, Windowed::kAll), kv));
    const std::vector<SumHop> sums =
        sum_hops(slabs, heads.window, home_positions(plan, stage, layer, Windowed::kWithRest));
    traffic.windows += sum(sum_bytes_sent(sums, n_ranks, spec.head_dim));
  }
  return traffic;
}

DecodeTraffic decode_traffic(const Stage& stage, const ModelSpec& spec, LayerId layer,
                             std::int64_t batch_size, DType weights) {
  DecodeTraffic traffic;
  const std::int64_t n_ranks = stage.ring.n();
  if (n_ranks == 1) return traffic;
  std::int64_t n_split = 0;
  for (const KvHeadId head : IdRange<KvHeadId>(spec.n_kv_heads)) {
    if (stage.home_of(layer, head).shares.size() > 1) ++n_split;
  }
  traffic.gather_bytes = batch_size * n_split * spec.gqa_group() * 2 * kF32;
  traffic.reduce_bytes = batch_size * spec.d_model * kF32;
  const std::int64_t hops = n_ranks - 1;
  if (is_integer(weights)) {
    traffic.join_bytes = batch_size * n_split * spec.gqa_group() * spec.head_dim * kF32;
  }
  const auto reduced = [&](std::int64_t bytes) {
    const bool one_round = n_ranks == 2 || bytes <= kOneRoundReduceBytes;
    return (one_round ? n_ranks * hops : 2 * hops) * bytes;
  };
  traffic.total = n_ranks * hops * traffic.gather_bytes + 2 * reduced(traffic.reduce_bytes) +
                  reduced(traffic.join_bytes);
  return traffic;
}

}  // namespace longhaul
