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
    const Extent tokens{block.first_position, block.first_position + block_size};
    const auto place = closed.store(tokens);
    if (!place) {
      throw Error(ErrorCode::kOutOfMemory,
                  fmt::format("no cache block is free for tokens from {} on of layer {}, KV head "
                              "{}",
                              tokens.begin, layer.value, kv_head.value));
    }
    closed.advance_to({tokens.end});
    items_.push_back({.open = block.data, .closed = place->block});
  }
}

void CloseBlocks::run(StreamRef stream, const KvBlockShape& shape) {
  kv_close(stream, {.shape = shape, .items = items_});
  items_.clear();
}

}  // namespace longhaul
