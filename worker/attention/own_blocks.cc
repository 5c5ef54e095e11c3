#include "worker/attention/own_blocks.h"

#include <fmt/format.h>

#include <optional>

#include "base/error.h"

namespace longhaul {
namespace {

// Rows of one head: [rows, head_dim], strided.
TensorView<const float, 2> head_of(const TensorView<const float, 3>& x, Extent rows,
                                   KvHeadId head) {
  return {x.data() + rows.begin * x.stride(0) + head.value * x.stride(1),
          {rows.size(), x.dim(2)},
          {x.stride(0), 1}};
}

}  // namespace

void OwnBlocks::append(StreamRef stream, LayerId layer, const Batch& batch,
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
    for (const KvHeadId kv_head : layout_.order(layer)) {
      HeadCache& cache = segment.cache->head(layer, kv_head);
      const std::optional<HeadCache::AppendPlace> place = cache.extend(segment.rows.size());
      if (!place) {
        throw Error(ErrorCode::kOutOfMemory,
                    fmt::format("no cache block is free for {} more tokens of layer {}, KV head {}",
                                segment.rows.size(), layer.value, kv_head.value));
      }
      const std::size_t first = append_blocks_.size();
      for (std::int64_t i = 0; i < place->n_blocks; ++i) {
        append_blocks_.push_back(cache.writable_block(*place, i));
      }
      append_items_.push_back({.k = head_of(k, segment.rows, kv_head),
                               .v = head_of(v, segment.rows, kv_head),
                               .blocks = std::span(append_blocks_).subspan(first),
                               .first_slot = place->first_slot.value});
    }
  }
  kv_append(stream, {.shape = layout_.shape(), .items = append_items_});
}

}  // namespace longhaul
