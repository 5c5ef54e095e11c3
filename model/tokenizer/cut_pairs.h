// Which two neighbouring symbols a token can ever hold side by side. Where a text has two symbols
// that no merge can bring together, it may be cut: every merge joins what it finds on one side, so
// both sides give the same tokens alone as together. This makes a whole document, which
// SentencePiece-style tokenizers treat as one word, a sequence of short ones, exactly.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/tokenizer/merge_table.h"

namespace longhaul::tokenization {

class CutPairs {
 public:
  CutPairs() = default;
  // `symbols`: the ids that a word can start out with. `lengths[id]`: of the token's text; a rule's
  // result is longer than its parts.
  CutPairs(const MergeTable& merges, std::span<const std::int32_t> symbols,
           std::span<const std::size_t> lengths);

  // False may also mean "not known": pairs share bits.
  bool never_merged(std::int32_t left, std::int32_t right) const {
    const std::uint64_t bit = bit_of(left, right);
    return (bits_[bit / 64] >> (bit % 64) & 1) == 0;
  }

 private:
  std::uint64_t bit_of(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
                              static_cast<std::uint32_t>(right);
    return (key * 0xD6E8FEB86659FD93U) >> shift_;
  }
  std::vector<std::uint64_t> bits_{~std::uint64_t{0}};  // without rules known: nothing may be cut
  int shift_ = 58;
};

}  // namespace longhaul::tokenization
