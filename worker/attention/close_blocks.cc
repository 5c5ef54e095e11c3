#include "worker/attention/close_blocks.h"

#include <fmt/format.h>

#include "base/error.h"

namespace longhaul {

void CloseBlocks::add(LayerId layer, KvHeadId kv_head, SequenceCache& cache) {
  const std::int64_t block_size = cache.layout().shape().block_size;
  HeadCache& closed = cache.head(layer, kv_head);
  for (const KvBlockRef& block : cache.open(layer, kv_head)->blocks()) {
    const bool is_closed = block.first_position < closed.next_position().value;
    if (is_closed || block.n_tokens < block_size) continue;
    closed.advance_to({block.first_position});  // those before it may be at home elsewhere
    const auto place = closed.extend(block_size);
    if (!place) {
      throw Error(ErrorCode::kOutOfMemory,
                  fmt::format("no cache block is free for tokens from {} on of layer {}, KV head "
                              "{}",
                              block.first_position, layer.value, kv_head.value));
    }
    items_.push_back({.open = block.data,
                      .closed = closed.writable_block(*place, 0),
                      .entry = closed.entries_to_write(*place)});
  }
}

void CloseBlocks::run(StreamRef stream, const KvBlockShape& shape) {
  kv_close(stream, {.shape = shape, .items = items_});
  items_.clear();
}

}  // namespace longhaul
