// Pieces of normalized text to ids: splits into words and encodes each. The searches, scratch
// memory and cache of one thread.
//
// Several threads can share one long piece because the search of a memoryless first step may start
// anew behind any match. Each thread starts at a guess; what it finds before its first match end
// that its predecessor reaches, too, is dropped:
//
//   text      |the cat sat on the mat|      true words: the| cat| sat| on| the| mat
//   thread 0  [0, 10)                       the| cat| sat|            stops behind 10, at 11
//   thread 1  [10, 22) guesses 10           t| on| the| mat           its match end 11 is known:
//                                            ^ dropped                 all behind it is right
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "model/tokenizer/bpe_encoder.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer_parts.h"

namespace longhaul::tokenization {

// A part of the text between added tokens, normalized; or an added token.
struct Piece {
  std::string_view text;
  bool is_first = false;       // starts where the original text starts
  std::size_t first_step = 0;  // of the pre-tokenizer: earlier ones are done
  std::int32_t id = TextPart::kText;
};

class PieceEncoder {
 public:
  explicit PieceEncoder(const TokenizerParts& parts)
      : splitter_(parts.pre_tokenizer), encoder_(parts.model), parts_(&parts) {}

  void encode(const Piece& piece, std::vector<std::int32_t>& out);

  // The words that matches of the piece's first step, which is memoryless, make from `begin` on:
  // to the end of the first match that ends at `stop` or behind; or, when no match starts before
  // `stop`, to the end of the last one. Calls at_boundary(offset) behind each match; true stops.
  // Returns the offset up to which all is encoded.
  std::size_t encode_span(const Piece& piece, std::size_t begin, std::size_t stop,
                          std::vector<std::int32_t>& out,
                          const std::function<bool(std::size_t)>& at_boundary);

 private:
  WordSplitter splitter_;
  BpeEncoder encoder_;
  const TokenizerParts* parts_;
};

}  // namespace longhaul::tokenization
