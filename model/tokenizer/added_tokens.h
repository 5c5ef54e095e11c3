// Added tokens: texts that become one id wherever they stand, before (`normalized` false) or after
// the normalizer. Matches are leftmost, then longest, without overlap, as the `tokenizers` library
// finds them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/tokenizer.h"

namespace longhaul::tokenization {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
};

// Which special tokens that are written in a text count as such.
struct SpecialTokens {
  bool parse = false;                       // none otherwise
  std::span<const TextRange> literal = {};  // those that touch one of these stay text
  std::size_t offset = 0;                   // of the text at hand in that of `literal`
  // Of the token at [begin, end).
  bool counts(std::size_t begin, std::size_t end) const;
};

// A part of a text: an added token, or text between.
struct TextPart {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int32_t id = kText;
  static constexpr std::int32_t kText = -1;
};

// A set of added tokens that are searched for together. Immutable.
class AddedTokenSet {
 public:
  // Tokens in order of precedence; `texts[i]` is what is searched for token i, not empty.
  AddedTokenSet() = default;
  AddedTokenSet(std::vector<AddedToken> tokens, const std::vector<std::string>& texts);

  // Covers `text` with parts, none empty. A special token that is found but does not count
  // is text, together with what it hides.
  std::vector<TextPart> split(std::string_view text, const SpecialTokens& special) const;

 private:
  struct Found {
    std::size_t length = 0;
    std::size_t token = 0;
  };
  Found longest_at(std::string_view text) const;
  std::size_t next_candidate(std::string_view text, std::size_t from) const;

  struct Node {
    std::vector<std::pair<char, std::size_t>> children;  // by byte
    std::size_t token = kNoToken;
  };
  static constexpr std::size_t kNoToken = static_cast<std::size_t>(-1);
  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;   // a trie; [0] is its root
  std::vector<bool> starts_;  // [256]: some token starts with this byte
  std::string first_bytes_;
};

}  // namespace longhaul::tokenization
