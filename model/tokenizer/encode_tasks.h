// How a long text is shared out: added tokens and normalization first, which makes pieces, then
// tasks that threads can do in any order.
#pragma once
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/piece_encoder.h"
#include "model/tokenizer/tokenizer_parts.h"

namespace longhaul::tokenization {

struct Prepared {
  std::deque<std::string> buffers;  // what `pieces` point into when it is not the text itself
  std::vector<Piece> pieces;
};

// The pieces of `text`, which is valid UTF-8 and must outlive them.
Prepared prepare(const TokenizerParts& parts, std::string_view text, const SpecialTokens& special);

enum class TaskKind {
  kPieces,  // whole pieces [first_piece, last_piece)
  kCut,     // a part of a piece that no token crosses: `cut` in place of first_piece
  kGuess,   // [begin, end) of first_piece, whose true start the tasks before tell
};
struct Task {
  TaskKind kind = TaskKind::kPieces;
  std::size_t first_piece = 0;
  std::size_t last_piece = 0;
  Piece cut = {};
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Tasks of about `chunk_bytes` of text each, in the order of the text. `alone`: one thread does
// them all, so that guessing is of no use.
std::vector<Task> make_tasks(const TokenizerParts& parts, const std::vector<Piece>& pieces,
                             std::size_t chunk_bytes, bool alone);

}  // namespace longhaul::tokenization
