#include "worker/kv/head_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace longhaul {

HeadCache::HeadCache(BlockPool& pool, BlockUse use)
    : pool_(&pool), use_(use), table_(pool.new_table()) {}

HeadCache::~HeadCache() {
  for (const BlockId id : ids_) pool_->release(id);
}

HeadCache::HeadCache(HeadCache&& other) noexcept
    : pool_(other.pool_),
      use_(other.use_),
      next_position_(std::exchange(other.next_position_, TokenPos{0})),
      blocks_(std::exchange(other.blocks_, {})),
      ids_(std::exchange(other.ids_, {})),
      n_slots_(std::exchange(other.n_slots_, 0)),
      table_(std::move(other.table_)),
      listed_(std::exchange(other.listed_, nullptr)),
      seen_by_(std::exchange(other.seen_by_, nullptr)),
      first_unlisted_(std::exchange(other.first_unlisted_, TokenPos{0})) {}

std::int64_t HeadCache::n_free_slots() const {
  return blocks_.empty() ? 0 : pool_->shape().block_size - blocks_.back().n_tokens;
}

std::optional<HeadCache::AppendPlace> HeadCache::extend(std::int64_t n_tokens) {
  const std::int64_t block_size = pool_->shape().block_size;
  if (is_compacted() && static_cast<std::int64_t>(listed_->size()) == n_slots()) move_to_end();
  const std::int64_t n_free = n_free_slots();
  const bool fills_partial = n_free > 0 && n_tokens > 0;
  const bool copies_partial = fills_partial && pool_->is_shared(ids_.back());
  const std::int64_t n_fresh = ceil_div(std::max<std::int64_t>(0, n_tokens - n_free), block_size);

  const std::size_t n_before = ids_.size();
  for (std::int64_t i = 0; i < n_fresh + (copies_partial ? 1 : 0); ++i) {
    const std::optional<BlockId> id = pool_->take(use_, BlockContent::kUndefined);
    if (!id) {
      for (std::size_t j = n_before; j < ids_.size(); ++j) pool_->release(ids_[j]);
      ids_.resize(n_before);
      return std::nullopt;
    }
    ids_.push_back(*id);
  }
  if (copies_partial) {
    const BlockId copy = ids_.back();
    ids_.pop_back();
    BlockId& shared = ids_[n_before - 1];
    pool_->copy(copy, shared);
    pool_->release(std::exchange(shared, copy));
    blocks_.back().data = pool_->data(copy);
  }

  AppendPlace place;
  place.first_slot = {fills_partial ? block_size - n_free : 0};
  place.n_blocks = n_fresh + (fills_partial ? 1 : 0);
  std::int64_t n_left = n_tokens;
  if (fills_partial) {
    const std::int64_t n_here = std::min(n_free, n_left);
    blocks_.back().n_tokens += n_here;
    n_left -= n_here;
  }
  for (std::size_t j = n_before; j < ids_.size(); ++j) {
    const std::int64_t n_here = std::min(block_size, n_left);
    blocks_.push_back({.data = pool_->data(ids_[j]),
                       .first_position = next_position_.value + n_tokens - n_left,
                       .n_tokens = n_here});
    n_left -= n_here;
  }
  next_position_.value += n_tokens;
  n_slots_ += n_tokens;
  if (table_ != nullptr)
    table_->changed_from(static_cast<std::int64_t>(blocks_.size()) - place.n_blocks);
  return place;
}

// Replaces a block that others share by a copy; false when the pool has none.
bool HeadCache::own_block(std::size_t index) {
  if (!pool_->is_shared(ids_[index])) return true;
  const std::optional<BlockId> copy = pool_->take(use_, BlockContent::kUndefined);
  if (!copy) return false;
  pool_->copy(*copy, ids_[index]);
  pool_->release(std::exchange(ids_[index], *copy));
  blocks_[index].data = pool_->data(*copy);
  if (table_ != nullptr) table_->changed_from(static_cast<std::int64_t>(index));
  return true;
}

std::optional<HeadCache::StorePlace> HeadCache::store(Extent positions) {
  const std::int64_t block_size = pool_->shape().block_size;
  const std::int64_t first_position =
      std::max(positions.begin / block_size * block_size, first_unlisted_.value);
  const BlockSlot first_slot{positions.begin - first_position};
  require(!positions.empty() && first_slot.value + positions.size() <= block_size,
          "HeadCache: the tokens to store are not of one block");
  auto at = blocks_.end();  // new blocks are among the last
  while (at != blocks_.begin() && (at - 1)->first_position >= first_position) --at;
  const auto index = static_cast<std::size_t>(at - blocks_.begin());
  if (table_ != nullptr) table_->forget_form();
  if (at != blocks_.end() && at->first_position == first_position) {
    require(at->n_tokens == first_slot.value,
            "HeadCache: tokens of a block are missing or there twice");
    if (!own_block(index)) return std::nullopt;
    blocks_[index].n_tokens += positions.size();
    n_slots_ += positions.size();
    return StorePlace{pool_->data(ids_[index]), first_slot};
  }
  require(first_slot == BlockSlot{0}, "HeadCache: the first tokens of a block are missing");
  const std::optional<BlockId> id = pool_->take(use_);
  if (!id) return std::nullopt;
  blocks_.insert(
      at,
      {.data = pool_->data(*id), .first_position = first_position, .n_tokens = positions.size()});
  ids_.insert(ids_.begin() + static_cast<std::ptrdiff_t>(index), *id);
  n_slots_ += positions.size();
  return StorePlace{pool_->data(*id), first_slot};
}

std::byte* HeadCache::writable_block(const AppendPlace& place, std::int64_t i) const {
  return pool_->data(ids_[ids_.size() - static_cast<std::size_t>(place.n_blocks - i)]);
}

TableMemory::Entry* HeadCache::entries_to_write(const AppendPlace& place) {
  if (table_ == nullptr) return nullptr;
  return table_->entries_of(blocks_, static_cast<std::int64_t>(blocks_.size()) - place.n_blocks);
}

std::optional<BlockTable> HeadCache::table() const {
  if (table_ == nullptr || seen_by_ != nullptr) return std::nullopt;
  return table_->table(blocks_);
}

void HeadCache::take_back(TokenPos next) {
  require(next.value <= next_position_.value, "HeadCache: tokens to take back are not there");
  next_position_ = next;
  while (!blocks_.empty() && blocks_.back().first_position >= next.value) {
    pool_->release(ids_.back());
    ids_.pop_back();
    n_slots_ -= blocks_.back().n_tokens;
    blocks_.pop_back();
  }
  if (table_ != nullptr) table_->changed_from(static_cast<std::int64_t>(blocks_.size()));
  if (blocks_.empty()) return;
  KvBlockRef& last = blocks_.back();
  const std::int64_t n_left = std::min(last.n_tokens, next.value - last.first_position);
  n_slots_ -= last.n_tokens - n_left;
  last.n_tokens = n_left;
}

HeadCache HeadCache::fork() const {
  HeadCache child(*pool_, use_);
  child.next_position_ = next_position_;
  child.blocks_ = blocks_;
  child.ids_ = ids_;
  child.n_slots_ = n_slots_;
  if (table_ != nullptr) {
    const auto n_blocks = static_cast<std::int64_t>(blocks_.size());
    child.table_ = table_->fork(n_blocks - (n_free_slots() > 0 ? 1 : 0));
  }
  child.listed_ = listed_;
  child.seen_by_ = seen_by_;
  child.first_unlisted_ = first_unlisted_;
  for (const BlockId id : ids_) pool_->share(id);
  return child;
}

HeadCache HeadCache::full_blocks(TokenPos from) const {
  HeadCache child(*pool_, use_);
  child.seen_by_ = seen_by_;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const bool is_full = blocks_[i].n_tokens == pool_->shape().block_size;
    if (!is_full || blocks_[i].first_position + blocks_[i].n_tokens <= from.value) continue;
    child.blocks_.push_back(blocks_[i]);
    child.ids_.push_back(ids_[i]);
    child.n_slots_ += blocks_[i].n_tokens;
    pool_->share(ids_[i]);
  }
  return child;
}

void HeadCache::free_hidden(Extent hidden) {
  if (hidden.empty() || blocks_.empty()) return;
  require(!is_compacted(), "HeadCache: slots were kept of a head that sees a window");
  const std::int64_t block_size = pool_->shape().block_size;
  const auto begin = std::lower_bound(blocks_.begin(), blocks_.end(), hidden.begin,
                                      [](const KvBlockRef& block, std::int64_t position) {
                                        return block.first_position < position;
                                      });
  auto end = begin;
  while (end != blocks_.end() && end->first_position + block_size <= next_position_.value &&
         end->first_position + block_size <= hidden.end) {
    pool_->release(ids_[static_cast<std::size_t>(end - blocks_.begin())]);
    ++end;
  }
  for (auto block = begin; block != end; ++block) n_slots_ -= block->n_tokens;
  if (table_ != nullptr) table_->gave_up(begin - blocks_.begin(), end - begin);
  ids_.erase(ids_.begin() + (begin - blocks_.begin()), ids_.begin() + (end - blocks_.begin()));
  blocks_.erase(begin, end);
}

}  // namespace longhaul
