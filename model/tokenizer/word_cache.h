// The ids of words seen before. Grows with the text up to a limit, then keeps what it has: the
// frequent words come early. One thread.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::tokenization {

class WordCache {
 public:
  static constexpr std::size_t kMaxWordBytes = 64;  // longer words rarely come twice

  static std::uint64_t hash_of(std::string_view word) {
    constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
    std::uint64_t hash = word.size() * kOdd;
    const char* at = word.data();
    std::size_t left = word.size();
    for (; left >= 8; left -= 8, at += 8) {
      std::uint64_t eight;
      std::memcpy(&eight, at, 8);
      hash = (hash ^ eight) * kOdd;
      hash ^= hash >> 29;
    }
    std::uint64_t rest = 0;
    if (left > 0) std::memcpy(&rest, at, left);
    hash = (hash ^ rest) * kOdd;
    return hash ^ hash >> 32;
  }

  // The ids of `word` when they are known. Valid until the next insert.
  std::optional<std::span<const std::int32_t>> find(std::string_view word,
                                                    std::uint64_t hash) const {
    for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.length == 0) return std::nullopt;
      if (slot.hash == static_cast<std::uint32_t>(hash >> 32) && slot.length == word.size() &&
          std::memcmp(words_.data() + slot.word_at, word.data(), word.size()) == 0)
        return std::span(ids_).subspan(slot.ids_at, slot.n_ids);
    }
  }

  // `word` is new and has 1 to kMaxWordBytes bytes.
  void insert(std::string_view word, std::uint64_t hash, std::span<const std::int32_t> ids) {
    if (n_words_ >= kMaxWords) return;
    if (2 * (n_words_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[free_slot(hash)];
    slot = {static_cast<std::uint32_t>(hash),          static_cast<std::uint32_t>(hash >> 32),
            static_cast<std::uint32_t>(words_.size()), static_cast<std::uint32_t>(ids_.size()),
            static_cast<std::uint16_t>(word.size()),   static_cast<std::uint16_t>(ids.size())};
    words_.append(word);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    ++n_words_;
  }

 private:
  static constexpr std::size_t kMaxWords = std::size_t{1} << 17;
  struct Slot {
    std::uint32_t home = 0;  // low half of the hash: where the slot would like to be
    std::uint32_t hash = 0;  // high half
    std::uint32_t word_at = 0;
    std::uint32_t ids_at = 0;
    std::uint16_t length = 0;  // 0: empty
    std::uint16_t n_ids = 0;
  };

  std::size_t free_slot(std::uint64_t home) const {
    std::size_t at = home & mask_;
    while (slots_[at].length != 0) at = (at + 1) & mask_;
    return at;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.length != 0) slots_[free_slot(slot.home)] = slot;
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(64);
  std::size_t mask_ = 63;
  std::size_t n_words_ = 0;
  std::string words_;
  std::vector<std::int32_t> ids_;
};

}  // namespace longhaul::tokenization
