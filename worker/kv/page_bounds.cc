#include "worker/kv/page_bounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/page_bound.h"

namespace longhaul {
namespace {

constexpr auto kTilePages = static_cast<std::size_t>(kBoundPages);

void check_page(const KvBlockShape& shape, std::int64_t page_tokens) {
  require(page_tokens >= 1 && shape.block_size % page_tokens == 0,
          fmt::format("pages of {} tokens in blocks of {}: a block must hold whole pages",
                      page_tokens, shape.block_size));
}

}  // namespace

void PageBounds::update(const KvBlockShape& shape, std::int64_t page_tokens,
                        std::span<const KvBlockRef> blocks) {
  check_page(shape, page_tokens);
  std::size_t block = 0;  // the first one that is not as it was
  const auto is_known = [&](const Known& known, const KvBlockRef& now) {
    return known.first_position == now.first_position && known.n_tokens == now.n_tokens;
  };
  while (block < known_.size() && block < blocks.size() && is_known(known_[block], blocks[block]))
    ++block;
  std::int64_t n_known = 0;  // of that block's tokens
  const bool grew = block + 1 == known_.size() && block < blocks.size() &&
                    known_[block].first_position == blocks[block].first_position &&
                    known_[block].n_tokens < blocks[block].n_tokens;
  if (grew) n_known = known_[block].n_tokens;
  while (!pages_.empty() && pages_.back().block >= block && !(grew && pages_.back().block == block))
    pages_.pop_back();
  known_.resize(std::min(known_.size(), block));
  for (; block < blocks.size(); ++block, n_known = 0) {
    const KvBlockRef& now = blocks[block];
    require(now.first_position % page_tokens == 0,
            fmt::format("pages of {} tokens in a block from position {} on", page_tokens,
                        now.first_position));
    for (std::int64_t slot = n_known; slot < now.n_tokens;) {
      const std::int64_t end = std::min(now.n_tokens, (slot / page_tokens + 1) * page_tokens);
      add_keys(shape, now, {block, page_tokens, {slot, end}});
      slot = end;
    }
    known_.push_back({now.first_position, now.n_tokens});
  }
  tiles_of_pages_.clear();
  for (std::size_t first = 0; first < pages_.size(); first += kTilePages)
    tiles_of_pages_.push_back(tiles_[first / kTilePages]->data());
}

// Keys of one page, which is new if these are its first ones.
void PageBounds::add_keys(const KvBlockShape& shape, const KvBlockRef& block, const Keys& keys) {
  const std::int64_t first_slot = keys.slots.begin / keys.page_tokens * keys.page_tokens;
  const bool is_new = first_slot == keys.slots.begin;
  if (is_new) {
    pages_.push_back({.block = keys.block,
                      .first_slot = first_slot,
                      .number = (block.first_position + first_slot) / keys.page_tokens});
  }
  pages_.back().n_tokens = keys.slots.end - first_slot;
  const std::size_t index = pages_.size() - 1;
  Tile& tile = own_tile(index / kTilePages, shape.head_dim);
  const auto lane = static_cast<std::int64_t>(index % kTilePages);
  if (is_new) clear_bounds(lane, tile);
  widen_bounds(shape, block.data, keys.slots, lane, tile);
}

PageBounds::Tile& PageBounds::own_tile(std::size_t index, std::int64_t head_dim) {
  if (index == tiles_.size()) {
    tiles_.push_back(std::make_shared<Tile>(bound_tile_floats(head_dim)));
  } else if (tiles_[index].use_count() > 1) {
    tiles_[index] = std::make_shared<Tile>(*tiles_[index]);
  }
  return *tiles_[index];
}

std::size_t PageBounds::bytes() const {
  std::size_t n_floats = 0;
  for (const auto& tile : tiles_) n_floats += tile->size();
  return n_floats * sizeof(float);
}

}  // namespace longhaul
