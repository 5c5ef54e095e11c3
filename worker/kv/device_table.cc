#include "worker/kv/device_table.h"

#include <algorithm>
#include <vector>

#include "base/device/device_memory.h"

namespace longhaul {
namespace {

using Entry = TableMemory::Entry;

std::size_t bytes_of(std::int64_t n_entries) {
  return static_cast<std::size_t>(n_entries) * sizeof(Entry);
}

void copy_entries(StreamRef stream, Entry* to, const Entry* from, std::int64_t n) {
  if (n <= 0) return;
  copy_bytes(stream, reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
             bytes_of(n));
}

}  // namespace

void DeviceTable::changed_from(std::int64_t index) {
  const std::int64_t number = number_of(index);
  n_written_ = std::min(n_written_, number);
  n_shared_ = std::min(n_shared_, number);  // what was its own stays where it is no longer right
  if (index < gone_.begin) forget_form();   // there may be no gap any more
}

void DeviceTable::gave_up(std::int64_t index, std::int64_t n) {
  if (n == 0) return;
  if (gone_.empty()) {
    gone_ = {index, index + n};
  } else if (index <= gone_.begin && gone_.begin <= index + n) {
    gone_ = {index, gone_.end + index + n - gone_.begin};
  } else {
    forget_form();
  }
}

std::unique_ptr<DeviceTable> DeviceTable::fork(std::int64_t n_full) {
  auto child = std::make_unique<DeviceTable>(*memory_, stream_, block_size_);
  if (!has_form_ || !is_regular_) return child;
  n_full = std::min(number_of(n_full), n_written_);
  const std::int64_t n_own = n_full - n_shared_;
  if (n_own > n_shared_) {  // else the little that is not shared is uploaded for the child
    if (n_shared_ == 0) {
      shared_ = std::move(own_);
    } else {
      auto both = memory_->take(n_full);
      copy_entries(stream_, both->entries(), shared_->entries(), n_shared_);
      copy_entries(stream_, both->entries() + n_shared_, own_->entries(), n_own);
      shared_ = std::move(both);
    }
    own_ = nullptr;
    n_shared_ = n_written_ = n_full;
  }
  child->has_form_ = child->is_regular_ = true;
  child->gone_ = gone_;
  child->shared_ = shared_;
  child->n_shared_ = child->n_written_ = n_shared_;
  return child;
}

std::int64_t DeviceTable::first_position(std::span<const KvBlockRef> blocks) const {
  const bool is_first_gone = !gone_.empty() && gone_.begin == 0;
  return blocks.front().first_position - (is_first_gone ? gone_.end * block_size_ : 0);
}

bool DeviceTable::has_form(std::span<const KvBlockRef> blocks) {
  if (blocks.empty()) return false;
  // What was appended follows on what was there, but where others have the tokens in between.
  const std::int64_t last = number_of(static_cast<std::int64_t>(blocks.size()) - 1);
  const bool follows = blocks.back().first_position == first_position(blocks) + last * block_size_;
  if (!has_form_ || (is_regular_ && !follows)) find_form(blocks);
  return is_regular_;
}

// Whether all blocks but the last are full and follow each other, but for one gap at most.
void DeviceTable::find_form(std::span<const KvBlockRef> blocks) {
  has_form_ = true;
  is_regular_ = true;
  n_shared_ = n_written_ = 0;
  shared_ = nullptr;
  gone_ = {};
  for (std::size_t i = 1; i < blocks.size() && is_regular_; ++i) {
    const KvBlockRef& before = blocks[i - 1];
    const std::int64_t missing = blocks[i].first_position - before.first_position - block_size_;
    is_regular_ = before.n_tokens == block_size_ && missing >= 0 && missing % block_size_ == 0 &&
                  (missing == 0 || gone_.empty());
    if (missing > 0) {
      const auto number = static_cast<std::int64_t>(i);
      gone_ = {number, number + missing / block_size_};
    }
  }
}

// For entries of numbers up to this one. What is right stays.
void DeviceTable::make_room(std::int64_t n_numbers) {
  const std::int64_t n_own = n_numbers - n_shared_;
  if (own_ != nullptr && n_own <= own_->capacity()) return;
  auto larger = memory_->take(n_own);
  if (own_ != nullptr)
    copy_entries(stream_, larger->entries(), own_->entries(), n_written_ - n_shared_);
  own_ = std::move(larger);
}

// The entries of numbers [n_written_, end); there is room.
void DeviceTable::upload(std::span<const KvBlockRef> blocks, std::int64_t end) {
  if (n_written_ >= end) return;
  std::vector<Entry> entries(static_cast<std::size_t>(end - n_written_), nullptr);
  for (std::int64_t number = n_written_; number < end; ++number) {
    if (gone_.contains(number)) continue;
    const std::int64_t index = number < gone_.end ? number : number - gone_.size();
    entries[static_cast<std::size_t>(number - n_written_)] =
        blocks[static_cast<std::size_t>(index)].data;
  }
  const std::byte* there = stream_.cuda_stream().upload(std::as_bytes(std::span(entries)));
  copy_entries(stream_, own_->entries() + (n_written_ - n_shared_),
               reinterpret_cast<const Entry*>(there), end - n_written_);
  n_written_ = end;
}

Entry* DeviceTable::entries_of(std::span<const KvBlockRef> blocks, std::int64_t index) {
  if (!has_form(blocks)) return nullptr;
  const std::int64_t number = number_of(index);
  const std::int64_t end = number_of(static_cast<std::int64_t>(blocks.size()) - 1) + 1;
  n_written_ = std::min(n_written_, number);
  make_room(end);
  upload(blocks, number);
  n_written_ = end;
  return own_->entries() + (number - n_shared_);
}

std::optional<BlockTable> DeviceTable::table(std::span<const KvBlockRef> blocks) {
  if (!has_form(blocks)) return std::nullopt;
  const std::int64_t end = number_of(static_cast<std::int64_t>(blocks.size()) - 1) + 1;
  if (n_written_ < end) {
    make_room(end);
    upload(blocks, end);
  }
  return BlockTable{.shared = shared_ == nullptr ? nullptr : shared_->entries(),
                    .own = own_ == nullptr ? nullptr : own_->entries(),
                    .n_shared = n_shared_,
                    .first_position = first_position(blocks),
                    .n_tokens = (end - 1) * block_size_ + blocks.back().n_tokens,
                    .gone = gone_};
}

}  // namespace longhaul
