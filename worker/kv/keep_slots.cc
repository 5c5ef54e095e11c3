// HeadCache::keep and forget: the tokens that a method keeps move into blocks that they fill.
#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "worker/kv/head_cache.h"

namespace longhaul {
namespace {

// Where a slot lies.
struct SlotPlace {
  std::size_t block = 0;  // of the cache's blocks
  BlockSlot slot{0};
};

// The places of `slots`, which ascend; blocks may be filled in part.
std::vector<SlotPlace> places_of(std::span<const SlotIndex> slots,
                                 std::span<const KvBlockRef> blocks) {
  std::vector<SlotPlace> places;
  places.reserve(slots.size());
  std::size_t block = 0;
  SlotIndex first_slot{0};  // of that block
  for (const SlotIndex slot : slots) {
    while (slot.value - first_slot.value >= blocks[block].n_tokens) {
      first_slot.value += blocks[block++].n_tokens;
    }
    places.push_back({block, {slot.value - first_slot.value}});
  }
  return places;
}

// Whether these are all the tokens of one block.
bool is_whole_block(std::span<const SlotPlace> places, std::span<const KvBlockRef> blocks) {
  const SlotPlace& first = places.front();
  return first.slot == BlockSlot{0} && places.back().block == first.block &&
         static_cast<std::int64_t>(places.size()) == blocks[first.block].n_tokens;
}

// What kv_copy does at once must go to different blocks: in round i each block gets its i-th run.
using Rounds = std::vector<std::vector<KvCopyItem>>;

void add_runs(std::span<const SlotPlace> places, std::span<const KvBlockRef> blocks, std::byte* to,
              Rounds& rounds) {
  std::size_t round = 0;
  for (std::size_t begin = 0; begin < places.size();) {
    std::size_t end = begin + 1;
    while (end < places.size() && places[end].block == places[begin].block &&
           places[end].slot.value == places[end - 1].slot.value + 1) {
      ++end;
    }
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round++].push_back({.from = blocks[places[begin].block].data,
                               .from_slot = places[begin].slot.value,
                               .to = to,
                               .to_slot = static_cast<std::int64_t>(begin),
                               .n_tokens = static_cast<std::int64_t>(end - begin)});
    begin = end;
  }
}

}  // namespace

std::vector<TokenPos> HeadCache::positions() const {
  std::vector<TokenPos> positions;
  positions.reserve(static_cast<std::size_t>(n_slots()));
  if (listed_ != nullptr) positions = *listed_;
  std::size_t n_listed = positions.size();  // of the blocks ahead
  for (const KvBlockRef& block : blocks_) {
    const auto n_here = static_cast<std::size_t>(block.n_tokens);
    for (std::size_t i = std::min(n_here, n_listed); i < n_here; ++i) {
      positions.push_back({block.first_position + static_cast<std::int64_t>(i)});
    }
    n_listed -= std::min(n_here, n_listed);
  }
  return positions;
}

// Blocks that these slots fill, each with one owner more: this cache. Empty when the pool has too
// few.
std::optional<std::vector<BlockId>> HeadCache::gather(std::span<const SlotIndex> slots) {
  const auto block_size = static_cast<std::size_t>(pool_->shape().block_size);
  const std::vector<SlotPlace> places = places_of(slots, blocks_);
  std::vector<BlockId> ids;
  Rounds rounds;
  for (std::size_t begin = 0; begin < places.size(); begin += block_size) {
    const auto here = std::span(places).subspan(begin, std::min(block_size, places.size() - begin));
    if (is_whole_block(here, blocks_)) {
      ids.push_back(ids_[here.front().block]);
      pool_->share(ids.back());
      continue;
    }
    // Slots that hold no token must be zero.
    const bool is_full = here.size() == block_size;
    const auto id = pool_->take(use_, is_full ? BlockContent::kUndefined : BlockContent::kZeros);
    if (!id) {
      for (const BlockId taken : ids) pool_->release(taken);
      return std::nullopt;
    }
    ids.push_back(*id);
    add_runs(here, blocks_, pool_->data(*id), rounds);
  }
  for (const auto& items : rounds) pool_->copy_slots(items);
  return ids;
}

std::vector<SeenBy> HeadCache::seen_by() const {
  std::vector<SeenBy> seen_by;
  for (const KvBlockRef& block : blocks_) {
    if (block.seen_by == nullptr) {
      seen_by.insert(seen_by.end(), static_cast<std::size_t>(block.n_tokens), kSeenByAll);
      continue;
    }
    const auto first = seen_by_->of_slots().begin() + (block.seen_by - seen_by_->there(0));
    seen_by.insert(seen_by.end(), first, first + block.n_tokens);
  }
  return seen_by;
}

bool HeadCache::keep(std::span<const SlotIndex> slots, std::span<const SeenBy> seen_by) {
  const std::int64_t n_before = n_slots();
  require(std::adjacent_find(slots.begin(), slots.end(), std::greater_equal<>()) == slots.end() &&
              (slots.empty() || (slots.front().value >= 0 && slots.back().value < n_before)),
          "HeadCache: the slots to keep must ascend and hold tokens");
  require(seen_by.empty() || seen_by.size() == slots.size(),
          "HeadCache: who sees each of the slots to keep is not said");
  const auto n_kept = static_cast<std::int64_t>(slots.size());
  if (n_kept == n_before && seen_by.empty()) return true;
  std::shared_ptr<const SeenSlots> seen_slots = slots_seen_by(seen_by);
  std::optional<std::vector<BlockId>> ids = gather(slots);
  if (!ids) return false;

  const std::vector<TokenPos> before = positions();
  std::vector<TokenPos> kept;
  kept.reserve(slots.size());
  for (const SlotIndex slot : slots) kept.push_back(before[static_cast<std::size_t>(slot.value)]);
  listed_ = std::make_shared<const std::vector<TokenPos>>(std::move(kept));
  first_unlisted_ = next_position_;

  for (const BlockId id : ids_) pool_->release(id);
  ids_ = std::move(*ids);
  seen_by_ = std::move(seen_slots);
  refer_to_blocks(n_kept);
  return true;
}

std::optional<std::vector<std::byte*>> HeadCache::hold(std::vector<TokenPos> positions,
                                                       TokenPos next,
                                                       std::span<const SeenBy> seen_by) {
  require(ids_.empty() && next_position_ == TokenPos{0}, "HeadCache: the cache is not empty");
  const std::int64_t block_size = pool_->shape().block_size;
  const auto n_kept = static_cast<std::int64_t>(positions.size());
  std::shared_ptr<const SeenSlots> seen_slots = slots_seen_by(seen_by);
  std::vector<BlockId> ids;
  for (std::int64_t begin = 0; begin < n_kept; begin += block_size) {
    const std::optional<BlockId> id = pool_->take(use_);
    if (!id) {
      for (const BlockId taken : ids) pool_->release(taken);
      return std::nullopt;
    }
    ids.push_back(*id);
  }
  ids_ = std::move(ids);
  listed_ = std::make_shared<const std::vector<TokenPos>>(std::move(positions));
  first_unlisted_ = next_position_ = next;
  seen_by_ = std::move(seen_slots);
  refer_to_blocks(n_kept);
  std::vector<std::byte*> data;
  for (const BlockId id : ids_) data.push_back(pool_->data(id));
  return data;
}

// Of whole blocks, where these query heads see the tokens that fill them; null where all do.
std::shared_ptr<const SeenSlots> HeadCache::slots_seen_by(std::span<const SeenBy> seen_by) {
  if (seen_by.empty()) return nullptr;
  const std::int64_t block_size = pool_->shape().block_size;
  const std::int64_t n_blocks = ceil_div(static_cast<std::int64_t>(seen_by.size()), block_size);
  std::vector<SeenBy> of_slots(seen_by.begin(), seen_by.end());
  of_slots.resize(static_cast<std::size_t>(n_blocks * block_size), kSeenByAll);
  return pool_->new_seen_slots(std::move(of_slots));
}

// The blocks are filled by so many listed tokens.
void HeadCache::refer_to_blocks(std::int64_t n_kept) {
  blocks_.clear();
  n_slots_ = n_kept;
  if (table_ != nullptr) table_->forget_form();
  const std::int64_t block_size = pool_->shape().block_size;
  for (std::int64_t begin = 0; begin < n_kept; begin += block_size) {
    blocks_.push_back({.data = pool_->data(ids_[static_cast<std::size_t>(begin / block_size)]),
                       .n_tokens = std::min(block_size, n_kept - begin),
                       .seen_by = seen_by_ == nullptr ? nullptr : seen_by_->there(begin)});
  }
  move_to_end();
}

// Blocks of listed tokens say that they are the sequence's last ones.
void HeadCache::move_to_end() {
  std::int64_t position = next_position_.value - n_slots();
  for (KvBlockRef& block : blocks_) {
    block.first_position = position;
    position += block.n_tokens;
  }
}

void HeadCache::list() {
  if (!is_compacted()) return;
  listed_ = std::make_shared<const std::vector<TokenPos>>(positions());
  first_unlisted_ = next_position_;
  move_to_end();
}

bool HeadCache::forget(SlotIndex slot) {
  const std::int64_t n_before = n_slots();
  require(0 <= slot.value && slot.value < n_before,
          "HeadCache: the slot to forget must hold a token");
  require(seen_by_ == nullptr, "HeadCache: not all query heads see the slots to forget one of");
  const SlotPlace place = places_of({&slot, 1}, blocks_).front();
  if (slot.value != n_before - 1) {
    if (!own_block(place.block)) return false;
    const KvCopyItem item{.from = pool_->data(ids_.back()),
                          .from_slot = blocks_.back().n_tokens - 1,
                          .to = pool_->data(ids_[place.block]),
                          .to_slot = place.slot.value,
                          .n_tokens = 1};
    pool_->copy_slots({&item, 1});
  }
  std::vector<TokenPos> kept = positions();
  kept[static_cast<std::size_t>(slot.value)] = kept.back();
  kept.pop_back();
  listed_ = std::make_shared<const std::vector<TokenPos>>(std::move(kept));
  first_unlisted_ = next_position_;
  --n_slots_;
  if (--blocks_.back().n_tokens == 0) {
    pool_->release(ids_.back());
    ids_.pop_back();
    blocks_.pop_back();
    if (table_ != nullptr) table_->changed_from(static_cast<std::int64_t>(blocks_.size()));
  }
  move_to_end();
  return true;
}

}  // namespace longhaul
