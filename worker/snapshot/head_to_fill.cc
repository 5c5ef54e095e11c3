#include "worker/snapshot/head_to_fill.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "model/heads/kept_blocks.h"
#include "worker/snapshot/block_rows.h"

namespace longhaul {
namespace {

// Whether some later query sees one of the block's tokens, or the next token goes to it.
bool keeps_block(const KeyWindow& window, Extent block, std::int64_t n_tokens) {
  const Extent hidden = hidden_positions(window, n_tokens);
  return block.end > n_tokens || hidden.empty() || block.begin < hidden.begin ||
         block.end > hidden.end;
}

}  // namespace

void throw_no_block(const HeadToFillArgs& args, std::int64_t position) {
  throw Error(ErrorCode::kOutOfMemory,
              fmt::format("no cache block is free for tokens from {} on of layer {}, KV head {} of "
                          "a saved document",
                          position, args.layer.value, args.kv_head.value));
}

HeadToFill::HeadToFill(const HeadToFillArgs& args)
    : stream_(args.stream), shape_(&args.cache.layout().shape()) {
  if (!hold_chosen(args)) take_blocks(args);
  if (stream_.device() != Device::kCpu) move_to_host();
}

void HeadToFill::take_blocks(const HeadToFillArgs& args) {
  const KeyWindow window = args.cache.layout().window(args.layer, args.kv_head);
  HeadCache& head = args.cache.head(args.layer, args.kv_head);
  const std::int64_t n_closed = n_closed_tokens(*shape_, args.n_tokens);
  const std::int64_t n_rows = args.n_slots.value_or(n_closed);
  for (std::int64_t block = 0; block * shape_->block_size < n_rows; ++block) {
    const Extent whole{block * shape_->block_size, (block + 1) * shape_->block_size};
    if (!keeps_block(window, whole, args.n_tokens) || !args.is_home(block)) continue;
    const Extent positions{whole.begin, std::min(whole.end, n_rows)};
    const auto place = head.store(positions);
    if (!place) throw_no_block(args, positions.begin);
    blocks_.push_back({.positions = positions, .data = place->block});
  }
  head.advance_to({n_closed});
}

// As HeadCache::keep() left it: false where all tokens that were at home here stay and all query
// heads see them, which then lie as they did.
bool HeadToFill::hold_chosen(const HeadToFillArgs& args) {
  if (!args.chosen) return false;
  const std::int64_t block_size = shape_->block_size;
  const ChosenTokens& chosen = *args.chosen;
  std::vector<TokenPos> here;
  std::vector<SeenBy> seen_by;
  for (std::size_t i = 0; i < chosen.positions.size(); ++i) {
    if (!args.is_home(chosen.positions[i] / block_size)) continue;
    here.push_back({chosen.positions[i]});
    if (!chosen.seen_by.empty()) seen_by.push_back(chosen.seen_by[i]);
  }
  std::int64_t n_home = 0;
  for (std::int64_t block = 0; block * block_size < args.n_tokens; ++block) {
    if (args.is_home(block)) n_home += std::min(block_size, args.n_tokens - block * block_size);
  }
  if (static_cast<std::int64_t>(here.size()) == n_home && seen_by.empty()) return false;
  HeadCache& head = args.cache.head(args.layer, args.kv_head);
  const auto blocks = head.hold(here, {args.n_tokens}, seen_by);
  if (!blocks) throw_no_block(args, here.front().value);
  for (std::size_t i = 0; i < here.size(); ++i) {
    const std::int64_t slot = static_cast<std::int64_t>(i) % block_size;
    const std::int64_t position = here[i].value;
    if (slot > 0 && blocks_.back().positions.end == position) {
      ++blocks_.back().positions.end;
      continue;
    }
    blocks_.push_back({.positions = {position, position + 1},
                       .data = (*blocks)[i / static_cast<std::size_t>(block_size)],
                       .first_slot = slot});
  }
  return true;
}

void HeadToFill::finish() {
  for (std::size_t i = 0; i < on_device_.size(); ++i) {
    copy_from_host(stream_, on_device_[i],
                   std::span(memory_).subspan(i * shape_->bytes(), shape_->bytes()));
  }
}

void HeadToFill::move_to_host() {
  for (const BlockToFill& block : blocks_) {  // several neighbours are of one block
    if (on_device_.empty() || on_device_.back() != block.data) on_device_.push_back(block.data);
  }
  memory_.resize(on_device_.size() * shape_->bytes());
  std::size_t i = 0;
  for (BlockToFill& block : blocks_) {
    if (block.data != on_device_[i]) ++i;
    block.data = memory_.data() + i * shape_->bytes();
  }
}

}  // namespace longhaul
