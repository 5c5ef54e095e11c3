#include "partition/kept_keys.h"

#include <algorithm>

#include "base/ids.h"

namespace longhaul {

KeptKeys kept_keys(const ModelSpec& spec, const HeadRoles& roles, std::int64_t layer,
                   std::int64_t kv_head) {
  const auto i = static_cast<std::size_t>(layer);
  if (i < spec.attention_window.size() && spec.attention_window[i] != ModelSpec::kNoWindow) {
    return {.all = false, .sink = 0, .recent = spec.attention_window[i]};
  }
  if (roles.role(layer, kv_head) == HeadRole::kRetrieval) return {};
  return {.all = false, .sink = roles.sink, .recent = roles.recent};
}

std::int64_t kept_blocks(const KeptKeys& kept, std::int64_t block_size, std::int64_t n_tokens,
                         std::int64_t first_block) {
  const std::int64_t held = std::max<std::int64_t>(0, ceil_div(n_tokens, block_size) - first_block);
  if (kept.all) return held;
  // Gone are the full blocks between the sink's last block and the first one that the query at
  // n_tokens sees (positions > n_tokens - recent).
  const std::int64_t gone_begin = std::max(ceil_div(kept.sink, block_size), first_block);
  const std::int64_t past = std::max<std::int64_t>(0, n_tokens - kept.recent + 1);
  const std::int64_t gone_end = std::min(past, n_tokens) / block_size;
  return held - std::max<std::int64_t>(0, gone_end - gone_begin);
}

std::int64_t max_kept_blocks(const KeptKeys& kept, std::int64_t block_size, std::int64_t n_tokens) {
  const std::int64_t all = ceil_div(n_tokens, block_size);
  if (kept.all) return all;
  // `recent` consecutive tokens, the newest included, wherever in a block they start.
  const std::int64_t recent = std::max<std::int64_t>(1, std::min(kept.recent, n_tokens));
  return std::min(all, ceil_div(kept.sink, block_size) + ceil_div(recent - 1, block_size) + 1);
}

LayerHeads layer_heads(const ModelSpec& spec, const HeadRoles& roles, std::int64_t layer) {
  LayerHeads heads;
  for (std::int64_t kv_head = 0; kv_head < spec.n_kv_heads; ++kv_head) {
    const KeptKeys kept = kept_keys(spec, roles, layer, kv_head);
    if (kept.all) {
      ++heads.n_all;
    } else {
      ++heads.n_windowed;
      heads.window = kept;
    }
  }
  return heads;
}

}  // namespace longhaul
