#include "worker/snapshot/head_to_fill.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "model/heads/kept_blocks.h"

namespace longhaul {
namespace {

// Whether some later query sees one of the block's tokens, or the next token goes to it.
bool keeps_block(const KeyWindow& window, Extent block, std::int64_t n_tokens) {
  const Extent hidden = hidden_positions(window, n_tokens);
  return block.end > n_tokens || hidden.empty() || block.begin < hidden.begin ||
         block.end > hidden.end;
}

}  // namespace

HeadToFill::HeadToFill(SequenceCache& cache, LayerId layer, KvHeadId kv_head, std::int64_t n_tokens,
                       StreamRef stream, const std::function<bool(std::int64_t block)>& is_home)
    : stream_(stream), shape_(&cache.layout().shape()) {
  const KeyWindow window = cache.layout().window(layer, kv_head);
  HeadCache& head = cache.head(layer, kv_head);
  for (std::int64_t block = 0; block * shape_->block_size < n_tokens; ++block) {
    const Extent whole{block * shape_->block_size, (block + 1) * shape_->block_size};
    if (!keeps_block(window, whole, n_tokens) || !is_home(block)) continue;
    const Extent positions{whole.begin, std::min(whole.end, n_tokens)};
    const auto place = head.store(positions);
    if (!place) {
      throw Error(ErrorCode::kOutOfMemory,
                  fmt::format("no cache block is free for tokens from {} on of layer {}, KV head "
                              "{} of a saved document",
                              positions.begin, layer.value, kv_head.value));
    }
    blocks_.push_back({.positions = positions, .data = place->block});
  }
  head.advance_to({n_tokens});
  if (stream_.device() != Device::kCpu) move_to_host();
}

void HeadToFill::finish() {
  for (std::size_t i = 0; i < on_device_.size(); ++i) {
    copy_from_host(stream_, on_device_[i],
                   std::span(memory_).subspan(i * shape_->bytes(), shape_->bytes()));
  }
}

void HeadToFill::move_to_host() {
  memory_.resize(blocks_.size() * shape_->bytes());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    on_device_.push_back(blocks_[i].data);
    blocks_[i].data = memory_.data() + i * shape_->bytes();
  }
}

}  // namespace longhaul
