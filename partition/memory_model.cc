#include "partition/memory_model.h"

#include <algorithm>
#include <span>

#include "base/fp8_format.h"
#include "base/int4_format.h"
#include "base/int8_format.h"
#include "model/heads/choice_bytes.h"
#include "partition/choice_memory.h"
#include "partition/scratch_memory.h"
#include "partition/transfer_memory.h"
#include "partition/value_bytes.h"
#include "partition/weight_bytes.h"

namespace longhaul {
namespace {

constexpr std::int64_t kFfnTileRows = 512;  // the FFN works through a chunk in tiles of rows

// Of all sequences, on every rank of a ring.
std::int64_t merge_state_bytes(const ModelSpec& spec, const Workload& workload, Extent layers) {
  if (!spec.token_merging) return 0;
  return (workload.n_sequences + 1) * layers.size() * raw_tokens_bytes(spec);
}

void add_cache_bytes(const Stage& stage, const Plan& plan, const ModelSpec& spec,
                     const Workload& workload, IndexedVector<Rank, RankBytes>& bytes) {
  const std::int64_t block_bytes = plan.kv.block_bytes();
  for (const LayerId layer : stage.layer_ids()) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
      const Home& home = stage.home_of(layer, kv_head);
      const KeyWindow kept = plan.heads.window(layer, kv_head);
      const HeadPolicy& policy = plan.heads.at(layer, kv_head);
      const std::int64_t beside_head =
          open_bytes_of_head(plan.kv, workload) + bytes_beside_head(policy, spec, workload);
      if (!kept.is_unlimited()) {
        bytes[home.shares.front().rank].kv_streaming +=
            windowed_blocks(kept, workload) * block_bytes + beside_head;
        continue;
      }
      const auto blocks = retrieval_blocks(home, workload);
      const Gathered gathered = gathered_of(policy, workload);
      const std::int64_t of_block = block_bytes + bytes_beside_block(policy, spec, workload);
      const std::int64_t of_gathered = block_bytes + bytes_beside_gathered(policy, workload);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        bytes[home.shares[i].rank].kv_retrieval +=
            blocks[i] * of_block + gathered.of(blocks[i]) * of_gathered + beside_head;
      }
    }
  }
}

// Of a figure of each of a model's layers, those of a stage.
template <typename T>
std::span<const T> part_of(const std::vector<T>& of_layers, Extent layers) {
  return std::span(of_layers).subspan(static_cast<std::size_t>(layers.begin),
                                      static_cast<std::size_t>(layers.size()));
}

}  // namespace

std::int64_t room_for_blocks(const BesideBlocks& beside, const KvFormat& kv, std::int64_t n_bytes) {
  const std::int64_t left = n_bytes - beside.of_heads;
  if (left < 0) return -1;
  const std::int64_t room = left / (kv.block_bytes() + beside.of_block);
  // Each head on each rank gathers at most what it has there.
  return std::max(room - beside.most_gathered, room / (1 + beside.n_times));
}

StageSize stage_size(const ModelSpec& spec, const HeadNeeds& needs, const Workload& workload,
                     Extent layers, std::int64_t n_ranks) {
  StageSize size{.layers = layers, .n_ranks = n_ranks};
  size.weights = stage_weight_bytes(spec, workload.weights(spec), layers);
  size.scratch = needs.scratch;
  size.choosing = choice_bytes(part_of(needs.choice, layers), spec, workload, n_ranks);
  for (const BesideBlocks& layer : part_of(needs.beside, layers)) size.beside.add(layer);
  const std::int64_t n_tokens = workload.document_tokens + workload.tail_tokens;
  size.passes_all_blocks = workload.reproducible && n_ranks > 1;
  for (const LayerHeads& layer : part_of(needs.heads, layers)) {
    size.max_all_heads = std::max(size.max_all_heads, layer.n_all);
    size.max_windowed_heads = std::max(size.max_windowed_heads, layer.n_windowed);
    if (layer.n_windowed > 0) {
      size.max_sink_blocks =
          std::max(size.max_sink_blocks, ceil_div(layer.window.sink, workload.block_size));
      size.max_window_blocks = std::max(
          size.max_window_blocks,
          max_kept_blocks(layer.window, workload.block_size, n_tokens, workload.n_guesses));
    }
  }
  if (size.passes_all_blocks) size.max_all_heads = spec.n_kv_heads;
  return size;
}

std::int64_t max_own_blocks(const Workload& workload, std::int64_t n_ranks, RingPos position,
                            std::int64_t token_share) {
  const std::int64_t chunk_blocks = ceil_div(workload.chunk_len - 1, workload.block_size) + 1;
  if (n_ranks == 1) return chunk_blocks;
  const bool is_first = position == RingPos{0};
  if (token_share == 0 && !is_first) return 0;
  // Two slabs, each rounded to the nearest block edge; the chunk's last block goes to position 0.
  const std::int64_t rounded = chunk_blocks * token_share / Stage::kTokenShareTotal + 2;
  return std::min(chunk_blocks, is_first ? rounded + 1 : rounded);
}

std::int64_t activation_bytes(const ModelSpec& spec, const Workload& workload,
                              const StageSize& stage, RingPos position, std::int64_t token_share) {
  const std::int64_t blocks = max_own_blocks(workload, stage.n_ranks, position, token_share);
  const std::int64_t n_tokens =
      std::max(std::min(workload.chunk_len, blocks * workload.block_size), workload.decode_rows());
  // Hidden state, its norm and a sublayer's sum; q and o; k and v; m and l; cos and sin; position.
  const std::int64_t q_values = spec.n_heads * spec.head_dim;
  const std::int64_t per_token = 3 * spec.d_model + 2 * q_values +
                                 2 * spec.n_kv_heads * spec.head_dim + 2 * spec.n_heads +
                                 spec.head_dim + 2;
  std::int64_t bytes = n_tokens * per_token * kFloatBytes;
  bytes += 2 * std::min(n_tokens, kFfnTileRows) * spec.d_ff * kFloatBytes;  // gate and up
  bytes += n_tokens * std::max(spec.d_model, q_values) * 2;  // inputs rounded to bf16 or int8
  const DType weights = workload.weights(spec);
  if (is_integer(weights)) {
    // Those of the FFN's last product, too, and of each group of inputs a scale and a sum; beside
    // int4 weights a sum of each run.
    bytes += std::min(n_tokens, kFfnTileRows) * spec.d_ff * 2;
    const std::int64_t group = std::min(kInt8Group, spec.gqa_group() * spec.head_dim);
    const std::int64_t n_sums = weights == DType::kI4 ? ceil_div(group, kInt4Run) + 1 : 1;
    bytes += n_tokens * ceil_div(std::max({spec.d_model, q_values, spec.d_ff}), group) *
             (1 + n_sums) * 4;
  }
  if (weights == DType::kF8E4m3) {
    // Inputs in floats, in the order of the codes, from the beginning of a block to whole chunks.
    constexpr std::int64_t kMostFilledUp = Fp8Layout{}.block_in + kFp8Chunk;
    bytes += n_tokens * (std::max(spec.d_model, q_values) + kMostFilledUp) * kFloatBytes +
             std::min(n_tokens, kFfnTileRows) * (spec.d_ff + kMostFilledUp) * kFloatBytes;
  }
  bytes += merge_state_bytes(spec, workload, stage.layers);
  if (spec.token_merging) bytes += n_tokens * spec.n_kv_heads * kFloatBytes;  // their weights
  if (stage.layers.end == spec.n_layers) {
    bytes += workload.decode_rows() * spec.vocab_size * kFloatBytes;  // logits
  }
  // The layer's new blocks of all heads; of windowed heads, what comes for two slabs and a home,
  // and the same for others; a home sends the sink to all.
  std::int64_t windows = 0;
  if (stage.passes_all_blocks) {
    // Homes keep the whole chunk until its queries have been there.
    windows = stage.max_windowed_heads * max_own_blocks(workload, 1, position, token_share);
  } else if (stage.n_ranks > 1) {
    windows = stage.max_windowed_heads *
              (6 * stage.max_window_blocks + stage.n_ranks * stage.max_sink_blocks);
  }
  const KvFormat kv = workload.kv(spec);
  return bytes + (blocks * spec.n_kv_heads + windows) * kv.block_bytes() +
         blocks * spec.n_kv_heads * kv.open_block_bytes();
}

std::int64_t working_bytes(const RankSpec& rank, const StageSize& stage) {
  return rank.device == Device::kCpu ? stage.choosing : stage.scratch;
}

namespace {

// Of merged tokens on a ring, K and V as floats: those of the own rows, and those that come home.
// As they were projected, the last ones of two own slabs and of all, behind those before them; in
// answers a token of each row, the own heads' and all.
std::int64_t merging_buffer_bytes(const ModelSpec& spec, const Workload& workload,
                                  const StageSize& stage, std::int64_t n_tokens) {
  if (!spec.token_merging) return 0;
  const std::int64_t merged =
      (n_tokens + workload.chunk_len) * stage.max_all_heads * 2 * spec.head_dim * kFloatBytes;
  const std::int64_t n_tails = 2 + 2 * stage.n_ranks + 1;
  return merged + (n_tails * (spec.token_merging->window - 1) + 2 * workload.decode_rows()) *
                      raw_row_bytes(spec);
}

}  // namespace

std::int64_t ring_buffer_bytes(const ModelSpec& spec, const Workload& workload,
                               const StageSize& stage, std::int64_t largest_share) {
  if (stage.n_ranks == 1 || stage.max_all_heads == 0) return 0;
  const std::int64_t blocks = max_own_blocks(workload, stage.n_ranks, RingPos{0}, largest_share);
  const std::int64_t keys = blocks * stage.max_all_heads * workload.kv(spec).block_bytes();
  const std::int64_t n_tokens = std::min(workload.chunk_len, blocks * workload.block_size);
  // q, o, m, l of every query head that belongs to such a KV head.
  const std::int64_t queries =
      n_tokens * stage.max_all_heads * spec.gqa_group() * (2 * spec.head_dim + 2) * kFloatBytes;
  // Two trains that visit and one of the own history; two cars of queries, each here and arriving.
  return 3 * keys + 2 * queries + merging_buffer_bytes(spec, workload, stage, n_tokens);
}

std::vector<std::int64_t> retrieval_blocks(const Home& home, const Workload& workload) {
  std::vector<std::int64_t> blocks = blocks_by_share(home, workload.document_blocks());
  const std::vector<std::int64_t> tail = max_blocks_in_window(home, workload.tail_blocks());
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] += workload.n_sequences * tail[i];
  return blocks;
}

std::int64_t windowed_blocks(const KeyWindow& kept, const Workload& workload) {
  const std::int64_t document =
      max_kept_blocks(kept, workload.block_size, workload.document_tokens);
  // A fork owns what it made after the document's end, and its copy of the partial last block.
  const std::int64_t all =
      max_kept_blocks(kept, workload.block_size, workload.document_tokens + workload.tail_tokens,
                      workload.n_guesses);
  return document + workload.n_sequences * std::min(workload.tail_blocks(), all);
}

std::int64_t arena_bytes(const RankBytes& bytes, const RankSpec& rank) {
  if (rank.device == Device::kCpu) return 0;
  return bytes.activations + bytes.kv_retrieval + bytes.kv_streaming + bytes.ring_buffers +
         std::max<std::int64_t>(0, bytes.free());
}

IndexedVector<Rank, RankBytes> memory_of(const Plan& plan, const ModelSpec& spec,
                                         const ClusterSpec& cluster, const Workload& workload) {
  IndexedVector<Rank, RankBytes> bytes(cluster.ranks.size());
  for (const Rank rank : bytes.ids()) {
    bytes[rank].limit = cluster.rank(rank).memory_bytes;
    bytes[rank].headroom = bytes[rank].limit - cluster.usable_bytes(rank);
  }
  const HeadNeeds needs(plan.heads, spec, cluster, workload);
  for (const Replica& replica : plan.replicas) {
    std::vector<std::vector<Rank>> rings;
    for (const Stage& stage : replica.stages) rings.push_back(stage.ring.values());
    const std::vector<std::int64_t> transfers = transfer_bytes(cluster, rings);
    for (std::size_t s = 0; s < rings.size(); ++s) {
      const Stage& stage = replica.stages[s];
      const StageSize size = stage_size(spec, needs, workload, stage.layers, stage.ring.n());
      const std::int64_t largest =
          *std::max_element(stage.token_share.begin(), stage.token_share.end());
      const std::int64_t ring_buffers = ring_buffer_bytes(spec, workload, size, largest);
      for (const RingPos i : stage.ring.ids()) {
        RankBytes& rank = bytes[stage.ring[i]];
        rank.weights += size.weights;
        rank.activations += activation_bytes(spec, workload, size, i, stage.token_share[i]) +
                            working_bytes(cluster.rank(stage.ring[i]), size);
        rank.ring_buffers += ring_buffers;
        rank.transfers += transfers[s];
      }
      add_cache_bytes(stage, plan, spec, workload, bytes);
    }
  }
  return bytes;
}

}  // namespace longhaul
