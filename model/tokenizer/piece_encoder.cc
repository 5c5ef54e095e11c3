#include "model/tokenizer/piece_encoder.h"

namespace longhaul::tokenization {

void PieceEncoder::encode(const Piece& piece, std::vector<std::int32_t>& out) {
  if (piece.id != TextPart::kText) {
    out.push_back(piece.id);
    return;
  }
  splitter_.split(piece.text, piece.is_first, piece.first_step,
                  [&](std::string_view word) { encoder_.encode(word, out); });
}

std::size_t PieceEncoder::encode_span(const Piece& piece, std::size_t begin, std::size_t stop,
                                      std::vector<std::int32_t>& out,
                                      const std::function<bool(std::size_t)>& at_boundary) {
  const auto& step = std::get<SplitStep>(parts_->pre_tokenizer.steps[piece.first_step]);
  const auto emit = [&](std::size_t from, std::size_t to) {
    splitter_.split(piece.text.substr(from, to - from), piece.is_first && from == 0,
                    piece.first_step + 1,
                    [&](std::string_view word) { encoder_.encode(word, out); });
  };
  const bool to_end = stop >= piece.text.size();
  MatchWalk walk(splitter_.matcher(piece.first_step), piece.text, begin);
  std::size_t done = begin;
  while (const auto match = walk.next(to_end ? kNoLimit : stop)) {
    if (!step.removes_gap()) emit(done, match->begin);
    if (!step.removes_match()) emit(match->begin, match->end);
    done = match->end;
    if (at_boundary(done) || done >= stop) return done;
  }
  if (!to_end) return done;
  if (!step.removes_gap()) emit(done, piece.text.size());
  return piece.text.size();
}

}  // namespace longhaul::tokenization
