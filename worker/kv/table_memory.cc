#include "worker/kv/table_memory.h"

#include <algorithm>
#include <bit>

#include "base/device/table_memory.h"

namespace longhaul {
namespace {

constexpr std::int64_t kFewestEntries = kFewestTableEntries;
static_assert(sizeof(TableMemory::Entry) == kTableEntryBytes);
constexpr std::int64_t kSlabEntries = std::int64_t{1} << 17U;  // 1 MiB

std::size_t class_of(std::int64_t capacity) {
  return static_cast<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(capacity)));
}

}  // namespace

std::shared_ptr<TableMemory::Piece> TableMemory::take(std::int64_t n_entries) {
  const auto capacity = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max(n_entries, kFewestEntries))));
  std::vector<Entry*>& free = free_[class_of(capacity)];
  if (!free.empty()) {
    Entry* const entries = free.back();
    free.pop_back();
    return std::make_shared<Piece>(*this, entries, capacity);
  }
  if (n_left_ < capacity) {
    // What is left of the last slab is cut into pieces for later.
    while (n_left_ >= kFewestEntries) {
      const auto piece =
          static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n_left_)));
      give_back(next_, piece);
      next_ += piece;
      n_left_ -= piece;
    }
    const std::int64_t n = std::max(kSlabEntries, capacity);
    slabs_.emplace_back(static_cast<std::size_t>(n) * sizeof(Entry));
    bytes_ += slabs_.back().bytes();
    next_ = reinterpret_cast<Entry*>(slabs_.back().data());
    n_left_ = n;
  }
  Entry* const entries = next_;
  next_ += capacity;
  n_left_ -= capacity;
  return std::make_shared<Piece>(*this, entries, capacity);
}

void TableMemory::give_back(Entry* entries, std::int64_t capacity) {
  free_[class_of(capacity)].push_back(entries);
}

}  // namespace longhaul
