// A set of small ids as bits, such as the tokens of a vocabulary that may be picked.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace longhaul {

class IdSet {
 public:
  // Empty; takes ids in [0, size).
  explicit IdSet(std::int64_t size = 0)
      : size_(size), words_(static_cast<std::size_t>((size + 63) / 64)) {}

  // Of such words; bits beyond `size` are left out.
  IdSet(std::int64_t size, std::vector<std::uint64_t> words) : IdSet(size) {
    words.resize(words_.size());
    words_ = std::move(words);
    if (size % 64 != 0) words_.back() &= (std::uint64_t{1} << (size % 64)) - 1;
  }

  // All ids in [0, size).
  static IdSet full(std::int64_t size) {
    return {size, std::vector<std::uint64_t>(static_cast<std::size_t>((size + 63) / 64),
                                             ~std::uint64_t{0})};
  }

  std::int64_t size() const { return size_; }
  // False for ids outside [0, size).
  bool contains(std::int64_t id) const {
    return id >= 0 && id < size_ && (words_[word(id)] >> (id & 63) & 1) != 0;
  }
  void insert(std::int64_t id) { words_[word(id)] |= std::uint64_t{1} << (id & 63); }
  void erase(std::int64_t id) { words_[word(id)] &= ~(std::uint64_t{1} << (id & 63)); }
  // Both have the same size.
  void insert(const IdSet& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  std::int64_t count() const {
    std::int64_t n = 0;
    for (const std::uint64_t w : words_) n += std::popcount(w);
    return n;
  }
  // Calls visit(id) for each id, ascending.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t w = words_[i]; w != 0; w &= w - 1) {
        visit(static_cast<std::int64_t>(i) * 64 + std::countr_zero(w));
      }
    }
  }
  // 64 ids each, the lowest in the lowest bit; bits beyond size() are 0.
  const std::vector<std::uint64_t>& words() const { return words_; }
  std::size_t bytes() const { return words_.size() * sizeof(std::uint64_t); }
  bool operator==(const IdSet&) const = default;

 private:
  static std::size_t word(std::int64_t id) { return static_cast<std::size_t>(id / 64); }
  std::int64_t size_;
  std::vector<std::uint64_t> words_;
};

}  // namespace longhaul
