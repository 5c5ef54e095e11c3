#include "worker/attention/own_blocks.h"

#include <fmt/format.h>

#include <optional>

#include "base/error.h"
#include "worker/head_rows.h"

namespace longhaul {
namespace {

[[noreturn]] void throw_no_block(std::int64_t n_tokens, LayerId layer, KvHeadId kv_head) {
  throw Error(ErrorCode::kOutOfMemory,
              fmt::format("no cache block is free for {} more tokens of layer {}, KV head {}",
                          n_tokens, layer.value, kv_head.value));
}

}  // namespace

KvBlockShape OwnBlocks::shape() const {
  return layout_.has_open_blocks() ? open_block_shape(layout_.shape()) : layout_.shape();
}

void OwnBlocks::begin(StreamRef stream, BeginAttentionArgs begin) const {
  begin.append = {.shape = shape(), .items = {}};
  begin_attention(stream, begin);
}

void OwnBlocks::append(StreamRef stream, LayerId layer, const Batch& batch,
                       BeginAttentionArgs begin, const TensorView<const float, 3>& v) {
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
    // Guesses that came true since: their open blocks need not be kept any more.
    if (layout_.has_open_blocks()) segment.cache->trim(layer, segment.first_position);
    for (const KvHeadId kv_head : layout_.order(layer)) {
      HeadCache* const open = segment.cache->open(layer, kv_head);
      HeadCache& cache = open != nullptr ? *open : segment.cache->head(layer, kv_head);
      const std::optional<HeadCache::AppendPlace> place = cache.extend(segment.rows.size());
      if (!place) throw_no_block(segment.rows.size(), layer, kv_head);
      const std::size_t first = append_blocks_.size();
      for (std::int64_t i = 0; i < place->n_blocks; ++i) {
        append_blocks_.push_back(cache.writable_block(*place, i));
      }
      append_items_.push_back({.k = head_rows(begin.k, segment.rows, kv_head),
                               .v = head_rows(v, segment.rows, kv_head),
                               .blocks = std::span(append_blocks_).subspan(first),
                               .first_slot = place->first_slot.value,
                               .entries = cache.entries_to_write(*place)});
    }
  }
  begin.append = {.shape = shape(), .items = append_items_};
  begin_attention(stream, begin);
  if (!layout_.has_open_blocks()) return;
  for (const BatchSegment& segment : batch.segments) {
    for (const KvHeadId kv_head : layout_.order(layer))
      closing_.add(layer, kv_head, *segment.cache);
  }
  closing_.run(stream, layout_.shape());
}

}  // namespace longhaul
