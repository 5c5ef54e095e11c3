// Byte pair encoding of one word: its characters (or bytes) become symbols, and the pair of
// neighbours with the best merge rule joins, leftmost first, until no rule fits.
// Sennrich et al. 2016; details as the `tokenizers` library's BPE model has them.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "model/tokenizer/cut_pairs.h"
#include "model/tokenizer/merge_table.h"

namespace longhaul::tokenization {

inline constexpr std::int32_t kNoToken = -1;
inline constexpr std::int64_t kMaxTokenId = (std::int64_t{1} << 24) - 1;

// The vocabulary and rules. Immutable. Words of a byte-level model are raw bytes, those of another
// valid UTF-8.
class BpeModel {
 public:
  static BpeModel from_json(const JsonField& field, bool byte_level);

  const std::unordered_map<std::string, std::int32_t>& vocab() const { return vocab_; }
  bool byte_level() const { return byte_level_; }
  bool ignore_merges() const { return ignore_merges_; }
  const MergeTable& merges() const { return merges_; }
  const CutPairs& cuts() const { return cuts_; }

  // The id of a whole word, or kNoToken.
  std::int32_t whole_word(std::string_view word) const;

  // Appends the symbols of `word` to `symbols`; what the vocabulary cannot express is left out.
  void append_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const;

  // The symbols at the two ends of one character's; kNoToken where the neighbour cannot be told
  // from this character alone (unknown characters).
  struct Ends {
    std::int32_t first = kNoToken;
    std::int32_t last = kNoToken;
  };
  Ends ends_at(std::string_view text, std::size_t at) const;
  // No token can cover both sides of `at`, so that they can be encoded on their own. 0 < at <
  // text.size(), at the start of a character.
  bool can_cut(std::string_view text, std::size_t at) const;

 private:
  void read_vocab(const JsonField& field);
  void read_merges(const JsonField& field);
  void index_symbols(const JsonField& field);
  std::int32_t symbol_of(std::string_view character) const;

  bool byte_level_ = false;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool all_bytes_ = false;  // byte fallback never fails
  bool ignore_merges_ = false;
  std::optional<std::string> unknown_text_;
  std::int32_t unknown_ = kNoToken;
  std::string source_field_;

  std::unordered_map<std::string, std::int32_t> vocab_;  // as written in the file
  std::unordered_map<std::string, std::int32_t> words_;  // byte-level: by bytes
  std::array<std::int32_t, 256> byte_symbols_{};         // bytes, or byte fallback's tokens
  std::vector<std::int32_t> bmp_symbols_;                // by code point below U+10000
  std::unordered_map<char32_t, std::int32_t> astral_symbols_;
  MergeTable merges_;
  CutPairs cuts_;
};

}  // namespace longhaul::tokenization
