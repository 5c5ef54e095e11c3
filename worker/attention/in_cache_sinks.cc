#include "worker/attention/in_cache_sinks.h"

#include <algorithm>
#include <optional>

#include "kernels/rope.h"

namespace longhaul {
namespace {

bool is_in_cache(const KvPolicy& policy) {
  return policy.sink_positions() == SinkPositions::kInCache;
}

}  // namespace

InCacheSinks::InCacheSinks(const ModelSpec& spec, const CacheLayout& layout)
    : layout_(layout), frequencies_(rope_frequencies(spec)) {
  frequencies_.attention_scale = 1.0;  // q has it already
}

// All heads with in-cache positions share one window (HeadRoles), so one set of angles serves them.
void InCacheSinks::set_angles(StreamRef stream, std::span<const std::int64_t> positions,
                              const AttentionMask& mask) {
  if (std::ranges::equal(positions, positions_)) return;
  positions_.assign(positions.begin(), positions.end());
  const auto n_rows = static_cast<std::int64_t>(positions.size());
  const auto half = static_cast<std::int64_t>(frequencies_.inverse_frequencies.size());
  if (cos_.data() == nullptr || cos_.dim(0) < n_rows) {
    cos_ = DeviceTensor<float, 2>(stream, {n_rows, half});
    sin_ = DeviceTensor<float, 2>(stream, {n_rows, half});
  }
  const std::int64_t last_in_cache = mask.sink + mask.recent - 1;
  turns_.clear();
  sink_positions_.clear();
  for (const std::int64_t position : positions) {
    turns_.push_back(std::min(position, last_in_cache) - position);
    sink_positions_.push_back(position - mask.recent);
  }
  rope_angles(stream, {.positions = turns_,
                       .inverse_frequencies = frequencies_.inverse_frequencies,
                       .attention_scale = frequencies_.attention_scale,
                       .cos = cos_.view().slice(0, {0, n_rows}),
                       .sin = sin_.view().slice(0, {0, n_rows})});
}

void InCacheSinks::add_items(const BatchSegment& segment, std::int64_t layer, std::int64_t kv_head,
                             std::int64_t gqa_group, const TensorView<float, 3>& q,
                             std::span<const std::int64_t> positions,
                             const SoftmaxStateView& state) {
  const AttentionMask mask = layout_.policy(layer, kv_head).mask();
  // The segment's first rows may still have all sinks among their recent tokens.
  Extent rows = segment.rows;
  while (!rows.empty() && positions[static_cast<std::size_t>(rows.begin)] < mask.recent)
    ++rows.begin;
  if (rows.empty()) return;
  const std::size_t first_block = blocks_.size();
  for (KvBlockRef block : segment.cache->head(layer, kv_head).blocks()) {
    if (block.first_position >= mask.sink) break;
    block.n_tokens = std::min(block.n_tokens, mask.sink - block.first_position);
    blocks_.push_back(block);
  }
  const Extent q_heads{kv_head * gqa_group, (kv_head + 1) * gqa_group};
  items_.push_back({.q = q.slice(0, rows).slice(1, q_heads),
                    .q_positions = std::span(sink_positions_)
                                       .subspan(static_cast<std::size_t>(rows.begin),
                                                static_cast<std::size_t>(rows.size())),
                    .blocks = std::span(blocks_).subspan(first_block),
                    .mask = {},
                    .state = state.tokens(rows).heads(q_heads)});
}

void InCacheSinks::attend(StreamRef stream, std::int64_t layer, const Batch& batch,
                          const TensorView<float, 3>& q, std::span<const std::int64_t> positions,
                          float sm_scale, const SoftmaxStateView& state) {
  // Items point into blocks_, so it must not move while it is filled.
  std::size_t max_blocks = 0;
  std::optional<AttentionMask> mask;
  for (const std::int64_t kv_head : layout_.order(layer)) {
    const KvPolicy& policy = layout_.policy(layer, kv_head);
    if (!is_in_cache(policy)) continue;
    mask = policy.mask();
    for (const BatchSegment& segment : batch.segments)
      max_blocks += segment.cache->head(layer, kv_head).blocks().size();
  }
  if (!mask) return;
  set_angles(stream, positions, *mask);
  blocks_.clear();
  blocks_.reserve(max_blocks);
  items_.clear();
  const std::int64_t gqa_group = q.dim(1) / layout_.n_kv_heads();
  for (const std::int64_t kv_head : layout_.order(layer)) {
    if (!is_in_cache(layout_.policy(layer, kv_head))) continue;
    for (const BatchSegment& segment : batch.segments)
      add_items(segment, layer, kv_head, gqa_group, q, positions, state);
  }
  if (items_.empty()) return;
  const Extent rows{0, q.dim(0)};
  rope(stream, {.x = q, .cos = cos_.view().slice(0, rows), .sin = sin_.view().slice(0, rows)});
  attention(stream, {.shape = layout_.shape(), .sm_scale = sm_scale, .items = items_});
}

}  // namespace longhaul
