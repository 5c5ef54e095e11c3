// The merge rules of a BPE model by pair of token ids: a flat hash table that is read much more
// often than it is built.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

namespace longhaul::tokenization {

struct Merge {
  static constexpr std::int32_t kNoRank = std::numeric_limits<std::int32_t>::max();
  std::int32_t rank = kNoRank;  // position in the file: the lowest goes first
  std::int32_t result = -1;
};

class MergeTable {
 public:
  // Room for `n_merges`.
  explicit MergeTable(std::size_t n_merges = 0) {
    std::size_t n_slots = 16;
    shift_ = 60;
    while (n_slots < 2 * n_merges) {
      n_slots *= 2;
      --shift_;
    }
    slots_.resize(n_slots);
  }

  // A rule for the same pair replaces the earlier one.
  void set(std::int32_t left, std::int32_t right, Merge merge) {
    const std::uint64_t key = key_of(left, right);
    Slot& slot = slots_[slot_of(key)];
    slot = {key, merge};
  }

  // rank kNoRank when there is no rule.
  Merge find(std::int32_t left, std::int32_t right) const {
    return slots_[slot_of(key_of(left, right))].merge;
  }

  // Calls visit(left, right, merge) for each rule, in no order.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.key == kEmpty) continue;
      visit(static_cast<std::int32_t>(slot.key >> 32), static_cast<std::int32_t>(slot.key),
            slot.merge);
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // ids are not negative
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  // Where `key` is, or the empty slot where it would be.
  std::size_t slot_of(std::uint64_t key) const {
    std::size_t slot = static_cast<std::size_t>((key * 0x9E3779B97F4A7C15U) >> shift_);
    while (slots_[slot].key != key && slots_[slot].key != kEmpty)
      slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace longhaul::tokenization
