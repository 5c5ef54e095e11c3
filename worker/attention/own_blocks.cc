#include "worker/attention/own_blocks.h"

#include <fmt/format.h>

#include <optional>

#include "base/error.h"

namespace longhaul {
namespace {

// Rows of one head: [rows, head_dim], strided.
TensorView<const float, 2> head_of(const TensorView<const float, 3>& x, Extent rows,
                                   std::int64_t head) {
  return {x.data() + rows.begin * x.stride(0) + head * x.stride(1),
          {rows.size(), x.dim(2)},
          {x.stride(0), 1}};
}

// Sinks at other positions than their own are attended to apart (in_cache_sinks.h), but for those
// among the recent tokens.
AttentionMask mask_at_own_positions(const KvPolicy& policy) {
  AttentionMask mask = policy.mask();
  if (policy.sink_positions() == SinkPositions::kInCache) mask.sink = 0;
  return mask;
}

}  // namespace

void OwnBlocks::append(StreamRef stream, std::int64_t layer, const Batch& batch,
                       const TensorView<const float, 3>& k, const TensorView<const float, 3>& v) {
  // Items point into append_blocks_, so it must not move while it is filled.
  const std::int64_t block_size = layout_.shape().block_size;
  std::int64_t max_blocks = 0;
  for (const BatchSegment& segment : batch.segments) {
    max_blocks += layout_.n_kv_heads() * (segment.rows.size() / block_size + 2);
  }
  append_blocks_.clear();
  append_blocks_.reserve(static_cast<std::size_t>(max_blocks));
  append_items_.clear();
  for (const BatchSegment& segment : batch.segments) {
    for (const std::int64_t kv_head : layout_.order(layer)) {
      HeadCache& cache = segment.cache->head(layer, kv_head);
      const std::optional<HeadCache::AppendPlace> place = cache.extend(segment.rows.size());
      if (!place) {
        throw Error(ErrorCode::kOutOfMemory,
                    fmt::format("no cache block is free for {} more tokens of layer {}, KV head {}",
                                segment.rows.size(), layer, kv_head));
      }
      const std::size_t first = append_blocks_.size();
      for (std::int64_t i = 0; i < place->n_blocks; ++i) {
        append_blocks_.push_back(cache.writable_block(place->n_blocks, i));
      }
      append_items_.push_back({.k = head_of(k, segment.rows, kv_head),
                               .v = head_of(v, segment.rows, kv_head),
                               .blocks = std::span(append_blocks_).subspan(first),
                               .first_slot = place->first_slot});
    }
  }
  kv_append(stream, {.shape = layout_.shape(), .items = append_items_});
}

void OwnBlocks::attend(StreamRef stream, std::int64_t layer, const Batch& batch,
                       const TensorView<const float, 3>& q, std::span<const std::int64_t> positions,
                       float sm_scale, const SoftmaxStateView& state) {
  const std::int64_t gqa_group = q.dim(1) / layout_.n_kv_heads();
  attention_items_.clear();
  // Heads outside, so that the work of all sequences' retrieval heads starts first and the short
  // streaming heads fill the gaps at the end.
  for (const std::int64_t kv_head : layout_.order(layer)) {
    const Extent q_heads{kv_head * gqa_group, (kv_head + 1) * gqa_group};
    for (const BatchSegment& segment : batch.segments) {
      attention_items_.push_back(
          {.q = q.slice(0, segment.rows).slice(1, q_heads),
           .q_positions = positions.subspan(static_cast<std::size_t>(segment.rows.begin),
                                            static_cast<std::size_t>(segment.rows.size())),
           .blocks = segment.cache->head(layer, kv_head).blocks(),
           .mask = mask_at_own_positions(layout_.policy(layer, kv_head)),
           .state = state.tokens(segment.rows).heads(q_heads)});
    }
  }
  attention(stream, {.shape = layout_.shape(), .sm_scale = sm_scale, .items = attention_items_});
}

}  // namespace longhaul
