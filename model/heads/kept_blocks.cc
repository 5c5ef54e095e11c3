#include "model/heads/kept_blocks.h"

#include <algorithm>

#include "model/heads/select_tokens.h"

namespace longhaul {
namespace {

// The most blocks of one head at any time, of those that hold a token of `made`.
std::int64_t max_blocks_of(const KeyWindow& window, std::int64_t block_size, Extent made,
                           std::int64_t n_guesses) {
  if (made.empty()) return 0;
  const std::int64_t first_block = made.begin / block_size;
  const std::int64_t all = ceil_div(made.end, block_size) - first_block;
  if (window.is_unlimited()) return all;
  // The sink's, and `recent` consecutive tokens, the newest included, wherever in a block they
  // start.
  const std::int64_t sink =
      std::max<std::int64_t>(0, ceil_div(window.sink, block_size) - first_block);
  return std::min(all, sink + ceil_div(window.recent - 1 + n_guesses, block_size) + 1);
}

}  // namespace

Extent hidden_positions(const KeyWindow& window, std::int64_t n_tokens) {
  if (window.is_unlimited()) return {};
  // The next query, at position n_tokens, is the one that sees furthest back.
  return {window.sink, std::max(window.sink, n_tokens - window.recent + 1)};
}

std::int64_t kept_blocks(const KeyWindow& window, std::int64_t block_size, std::int64_t n_tokens,
                         std::int64_t first_block) {
  const std::int64_t held = std::max<std::int64_t>(0, ceil_div(n_tokens, block_size) - first_block);
  if (window.is_unlimited()) return held;
  // Gone are the full blocks between the sink's last block and the first one that the query at
  // n_tokens sees (positions > n_tokens - recent).
  const std::int64_t gone_begin = std::max(ceil_div(window.sink, block_size), first_block);
  const std::int64_t past = std::max<std::int64_t>(0, n_tokens - window.recent + 1);
  const std::int64_t gone_end = std::min(past, n_tokens) / block_size;
  return held - std::max<std::int64_t>(0, gone_end - gone_begin);
}

std::int64_t max_kept_blocks(const KeyWindow& window, std::int64_t block_size,
                             std::int64_t n_tokens, std::int64_t n_guesses) {
  return max_blocks_of(window, block_size, {0, n_tokens}, n_guesses);
}

std::int64_t compacted_blocks(std::int64_t n_kept, std::int64_t n_cut, std::int64_t block_size,
                              std::int64_t n_tokens) {
  return ceil_div(n_kept + n_tokens - n_cut, block_size);
}

std::int64_t sequence_blocks(const HeadTable& heads, Extent layers, std::int64_t block_size,
                             std::int64_t n_tokens) {
  std::int64_t sum = 0;
  for (const LayerId layer : IdRange<LayerId>(layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads()))
      sum += kept_blocks(heads.window(layer, kv_head), block_size, n_tokens);
  }
  return sum;
}

std::int64_t open_blocks(const HeadTable& heads, Extent layers, std::int64_t block_size,
                         std::int64_t n_tokens) {
  return n_tokens % block_size == 0 ? 0 : layers.size() * heads.n_kv_heads();
}

std::int64_t max_open_blocks(const HeadTable& heads, std::int64_t block_size,
                             std::int64_t chunk_len, std::int64_t n_guesses) {
  const std::int64_t at_rest = 1 + ceil_div(n_guesses, block_size);
  return heads.n_kv_heads() * (heads.n_layers() * at_rest + ceil_div(chunk_len, block_size));
}

std::int64_t document_blocks(const HeadTable& heads, Extent layers, std::int64_t block_size,
                             std::int64_t n_tokens) {
  std::int64_t n = sequence_blocks(heads, layers, block_size, n_tokens);
  for (const LayerId layer : IdRange<LayerId>(layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const auto* keep = std::get_if<KeepBudget>(&heads.at(layer, kv_head).keep);
      if (keep == nullptr || keep->when != KeepWhen::kAfterDocument) continue;
      n += compacted_blocks(budget_of(*keep, n_tokens), n_tokens, block_size, n_tokens) -
           kept_blocks({}, block_size, n_tokens);
    }
  }
  return n;
}

std::int64_t gathered_blocks(const HeadPolicy& policy, std::int64_t block_size,
                             std::int64_t n_tokens) {
  const auto* keep = std::get_if<KeepBudget>(&policy.keep);
  return keep == nullptr ? 0 : ceil_div(budget_of(*keep, n_tokens), block_size);
}

std::int64_t max_owned_blocks(const HeadTable& heads, std::int64_t block_size, Extent made,
                              std::int64_t chunk_len, std::int64_t n_guesses) {
  const std::int64_t all = max_blocks_of({}, block_size, made, 0);
  std::int64_t at_rest = 0;
  std::int64_t most_of_chunk = 0;  // of the layer that holds most of a chunk beside its windows
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    std::int64_t of_chunk = 0;
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const std::int64_t kept =
          max_blocks_of(heads.window(layer, kv_head), block_size, made, n_guesses);
      at_rest += kept + gathered_blocks(heads.at(layer, kv_head), block_size, made.end);
      of_chunk += std::min(all - kept, ceil_div(chunk_len, block_size));
    }
    most_of_chunk = std::max(most_of_chunk, of_chunk);
  }
  return at_rest + most_of_chunk;
}

LayerHeads layer_heads(const HeadTable& heads, LayerId layer) {
  LayerHeads result;
  for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
    const KeyWindow window = heads.window(layer, kv_head);
    if (window.is_unlimited()) {
      ++result.n_all;
      continue;
    }
    if (result.n_windowed++ == 0) {
      result.window = window;
    } else {
      result.window = {std::max(result.window.sink, window.sink),
                       std::max(result.window.recent, window.recent)};
    }
  }
  return result;
}

}  // namespace longhaul
