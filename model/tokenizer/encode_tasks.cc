#include "model/tokenizer/encode_tasks.h"

#include <algorithm>

#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

constexpr std::size_t kMaxStartSearch = 1024;  // bytes

void add_piece(const TokenizerParts& parts, std::string_view text, bool is_first,
               Prepared& prepared) {
  Piece piece{text, is_first};
  const auto& steps = parts.pre_tokenizer.steps;
  while (piece.first_step < steps.size()) {
    const auto* rewrite = std::get_if<RewriteStep>(&steps[piece.first_step]);
    if (rewrite == nullptr) break;
    piece.text = prepared.buffers.emplace_back(rewrite->apply(piece.text, is_first));
    ++piece.first_step;
  }
  prepared.pieces.push_back(piece);
}

enum class Sharing { kWhole, kCut, kGuess };

// How the pieces can be shared out.
Sharing sharing_of(const TokenizerParts& parts, std::size_t first_step) {
  const auto& steps = parts.pre_tokenizer.steps;
  const auto splits_at_one_char = [](const SplitterStep& step) {
    const auto* split = std::get_if<SplitStep>(&step);
    return split != nullptr && split->pattern.is_literal() &&
           char_length(split->pattern.text()[0]) == split->pattern.text().size();
  };
  // Splits at single characters do not look around: one more split where no token crosses changes
  // nothing. (With ignore_merges a word may be a token that no merge makes.)
  if (!parts.model.ignore_merges() &&
      std::all_of(steps.begin() + static_cast<std::ptrdiff_t>(first_step), steps.end(),
                  splits_at_one_char))
    return Sharing::kCut;
  if (first_step == steps.size()) return Sharing::kWhole;
  const auto* split = std::get_if<SplitStep>(&steps[first_step]);
  return split != nullptr && split->is_memoryless() ? Sharing::kGuess : Sharing::kWhole;
}

// A character start at or up to `window` behind `from`, where a word is likely to begin.
std::size_t likely_start(std::string_view text, std::size_t from, std::size_t window) {
  const std::size_t end = std::min(text.size(), from + window);
  for (std::size_t at = std::max<std::size_t>(from, 1); at + 1 < end; ++at) {
    const auto is_break = [&](std::size_t i) { return text[i] == ' ' || text[i] == '\n'; };
    if (is_break(at) && !is_break(at - 1) && !is_break(at + 1)) return at;
  }
  while (from < text.size() && is_continuation(text[from])) ++from;
  return from;
}

class TaskList {
 public:
  TaskList(const TokenizerParts& parts, const std::vector<Piece>& pieces, std::size_t chunk_bytes,
           bool alone)
      : parts_(&parts), pieces_(&pieces), chunk_bytes_(std::max<std::size_t>(chunk_bytes, 1)) {
    for (std::size_t i = 0; i < pieces.size(); ++i) add(i, alone);
    close_group(pieces.size());
  }
  std::vector<Task> take() { return std::move(tasks_); }

 private:
  void add(std::size_t index, bool alone) {
    const Piece& piece = (*pieces_)[index];
    group_bytes_ += piece.text.size();
    if (piece.text.size() <= chunk_bytes_) {
      if (group_bytes_ > chunk_bytes_) close_group(index + 1);
      return;
    }
    const Sharing sharing = sharing_of(*parts_, piece.first_step);
    if (sharing == Sharing::kWhole || (alone && sharing == Sharing::kGuess)) return;
    close_group(index);
    if (sharing == Sharing::kCut) {
      add_cuts(piece);
    } else {
      add_guesses(index);
    }
    group_begin_ = index + 1;
    group_bytes_ = 0;
  }

  void close_group(std::size_t end) {
    if (group_begin_ < end)
      tasks_.push_back({.kind = TaskKind::kPieces, .first_piece = group_begin_, .last_piece = end});
    group_begin_ = end;
    group_bytes_ = 0;
  }

  void add_cuts(const Piece& piece) {
    std::size_t begin = 0;
    for (std::size_t at = chunk_bytes_; at < piece.text.size(); ++at) {
      if (is_continuation(piece.text[at]) || !parts_->model.can_cut(piece.text, at)) continue;
      add_cut(piece, begin, at);
      begin = at;
      at += chunk_bytes_ - 1;
    }
    add_cut(piece, begin, piece.text.size());
  }

  void add_cut(const Piece& piece, std::size_t begin, std::size_t end) {
    Task task{.kind = TaskKind::kCut, .cut = piece};
    task.cut.text = piece.text.substr(begin, end - begin);
    task.cut.is_first &= begin == 0;
    tasks_.push_back(std::move(task));
  }

  void add_guesses(std::size_t index) {
    const std::string_view text = (*pieces_)[index].text;
    std::size_t begin = 0;
    while (begin < text.size()) {
      const std::size_t end = text.size() - begin <= chunk_bytes_
                                  ? text.size()
                                  : likely_start(text, begin + chunk_bytes_,
                                                 std::min(chunk_bytes_ / 4, kMaxStartSearch));
      tasks_.push_back(
          {.kind = TaskKind::kGuess, .first_piece = index, .begin = begin, .end = end});
      begin = end;
    }
  }

  const TokenizerParts* parts_;
  const std::vector<Piece>* pieces_;
  std::size_t chunk_bytes_;
  std::vector<Task> tasks_;
  std::size_t group_begin_ = 0;
  std::size_t group_bytes_ = 0;
};

}  // namespace

namespace {

// For the part of a text that begins at `begin` and was normalized: where that moved bytes, nobody
// knows any more what was literal, and a part that touches it has no special tokens.
SpecialTokens special_of_part(const SpecialTokens& all, const TextPart& part, bool bytes_moved) {
  SpecialTokens special = all;
  special.offset += part.begin;
  if (!bytes_moved || all.literal.empty()) return special;
  special.parse = all.counts(part.begin, part.end);
  special.literal = {};
  return special;
}

}  // namespace

Prepared prepare(const TokenizerParts& parts, std::string_view text, const SpecialTokens& special) {
  Prepared prepared;
  const auto add_token = [&](std::int32_t id) { prepared.pieces.emplace_back().id = id; };
  for (const TextPart& raw : parts.raw_added.split(text, special)) {
    if (raw.id != TextPart::kText) {
      add_token(raw.id);
      continue;
    }
    std::string_view part = text.substr(raw.begin, raw.end - raw.begin);
    bool is_first = raw.begin == 0;
    if (!parts.normalizer.is_identity()) {
      Normalized normalized = parts.normalizer.apply(part);
      is_first &= !normalized.front_removed;
      part = prepared.buffers.emplace_back(std::move(normalized.text));
    }
    const SpecialTokens inner_special =
        special_of_part(special, raw, /*bytes_moved=*/!parts.normalizer.is_identity());
    for (const TextPart& inner : parts.normalized_added.split(part, inner_special)) {
      if (inner.id != TextPart::kText) {
        add_token(inner.id);
      } else {
        add_piece(parts, part.substr(inner.begin, inner.end - inner.begin),
                  is_first && inner.begin == 0, prepared);
      }
    }
  }
  return prepared;
}

std::vector<Task> make_tasks(const TokenizerParts& parts, const std::vector<Piece>& pieces,
                             std::size_t chunk_bytes, bool alone) {
  return TaskList(parts, pieces, chunk_bytes, alone).take();
}

}  // namespace longhaul::tokenization
