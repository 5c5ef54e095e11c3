#include "worker/kv/page_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "model/heads/choice_bytes.h"

namespace longhaul {
namespace {

static_assert(sizeof(PageBounds::Page) == kListedPageBytes);
constexpr auto kTilePages = static_cast<std::size_t>(kBoundPages);

void check_page(const KvBlockShape& shape, std::int64_t page_tokens) {
  require(page_tokens >= 1 && shape.block_size % page_tokens == 0,
          fmt::format("pages of {} tokens in blocks of {}: a block must hold whole pages",
                      page_tokens, shape.block_size));
}

}  // namespace

void PageBounds::update(StreamRef stream, const KvBlockShape& shape, std::int64_t page_tokens,
                        std::span<const KvBlockRef> blocks) {
  static_assert(sizeof(Known) == kPagedBlockBytes);
  static_assert(sizeof(std::shared_ptr<Tile>) + sizeof(const float*) == kListedTileBytes);
  static_assert(2 * (sizeof(Widened) + sizeof(WidenBoundsItem)) + sizeof(Page) == kNewPageBytes);
  check_page(shape, page_tokens);
  std::vector<Widened> widened;
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
      add_keys(now, {block, page_tokens, {slot, end}}, widened);
      slot = end;
    }
    known_.push_back({now.first_position, now.n_tokens});
  }
  widen(stream, shape, widened);
  tiles_of_pages_.clear();
  for (std::size_t first = 0; first < pages_.size(); first += kTilePages)
    tiles_of_pages_.push_back(tiles_[first / kTilePages]->data);
}

// Keys of one page, which is new if these are its first ones.
void PageBounds::add_keys(const KvBlockRef& block, const Keys& keys,
                          std::vector<Widened>& widened) {
  const std::int64_t first_slot = keys.slots.begin / keys.page_tokens * keys.page_tokens;
  const bool is_new = first_slot == keys.slots.begin;
  if (is_new) {
    pages_.push_back({.block = keys.block,
                      .first_slot = first_slot,
                      .number = (block.first_position + first_slot) / keys.page_tokens});
  }
  pages_.back().n_tokens = keys.slots.end - first_slot;
  const std::size_t page = pages_.size() - 1;
  widened.push_back({page,
                     {.block = block.data,
                      .slots = keys.slots,
                      .lane = static_cast<std::int64_t>(page % kTilePages),
                      .is_new = is_new}});
}

// Makes the tiles that these pages need, and their bounds.
void PageBounds::widen(StreamRef stream, const KvBlockShape& shape,
                       std::span<const Widened> widened) {
  if (widened.empty()) return;
  tile_floats_ = bound_tile_floats(shape.head_dim);
  for (std::size_t tile = widened.front().page / kTilePages;
       tile <= widened.back().page / kTilePages && tile < tiles_.size(); ++tile)
    own_tile(stream, tile);
  const std::size_t n_tiles = widened.back().page / kTilePages + 1;
  if (n_tiles > tiles_.size()) {
    const auto n = static_cast<std::int64_t>(n_tiles - tiles_.size());
    const auto memory =
        std::make_shared<DeviceTensor<float, 2>>(stream, std::array{n, tile_floats_});
    for (std::int64_t i = 0; i < n; ++i)
      tiles_.push_back(std::make_shared<Tile>(Tile{memory, memory->data() + i * tile_floats_}));
  }
  std::vector<WidenBoundsItem> items;
  for (const Widened& of_page : widened) {
    items.push_back(of_page.item);
    items.back().tile = tiles_[of_page.page / kTilePages]->data;
  }
  widen_bounds(stream, {.shape = shape, .items = items});
}

// Replaces a tile that others share by a copy.
void PageBounds::own_tile(StreamRef stream, std::size_t index) {
  if (tiles_[index].use_count() == 1) return;
  const auto memory =
      std::make_shared<DeviceTensor<float, 2>>(stream, std::array{std::int64_t{1}, tile_floats_});
  copy_bytes(stream, reinterpret_cast<std::byte*>(memory->data()),
             reinterpret_cast<const std::byte*>(tiles_[index]->data), memory->bytes());
  tiles_[index] = std::make_shared<Tile>(Tile{memory, memory->data()});
}

std::size_t PageBounds::bytes() const {
  return tiles_.size() * static_cast<std::size_t>(tile_floats_) * sizeof(float);
}

}  // namespace longhaul
