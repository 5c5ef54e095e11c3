// A text through all parts of a tokenizer: added tokens, normalizer, then pieces, as tasks on
// several threads where that pays.
#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "model/tokenizer/piece_encoder.h"
#include "model/tokenizer/tokenizer_parts.h"
#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

constexpr std::size_t kMaxBoundaries = 1024;   // kept per speculative task
constexpr std::size_t kBoundarySearch = 1024;  // bytes looked at for a likely word start

struct Prepared {
  std::deque<std::string> buffers;  // what `pieces` point into when it is not the text itself
  std::vector<Piece> pieces;
};

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

Prepared prepare(const TokenizerParts& parts, std::string_view text, bool parse_special) {
  Prepared prepared;
  const auto add_token = [&](std::int32_t id) { prepared.pieces.emplace_back().id = id; };
  for (const TextPart& raw : parts.raw_added.split(text, parse_special)) {
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
    for (const TextPart& inner : parts.normalized_added.split(part, parse_special)) {
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

struct Boundary {
  std::size_t offset = 0;  // in the piece
  std::size_t n_ids = 0;   // before it
};
struct TaskResult {
  std::vector<std::int32_t> ids;
  std::vector<Boundary> boundaries;  // kGuess: the first of them
  std::size_t resume = 0;            // kGuess: all before is encoded

  // The ids before the boundary at `offset`, when it is one.
  std::optional<std::size_t> ids_before(std::size_t offset) const {
    const auto found =
        std::lower_bound(boundaries.begin(), boundaries.end(), offset,
                         [](const Boundary& b, std::size_t value) { return b.offset < value; });
    if (found == boundaries.end() || found->offset != offset) return std::nullopt;
    return found->n_ids;
  }
};

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

// A character start at or behind `from`, where a word is likely to begin.
std::size_t likely_start(std::string_view text, std::size_t from) {
  const std::size_t end = std::min(text.size(), from + kBoundarySearch);
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
                                  : likely_start(text, begin + chunk_bytes_);
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

void run_task(const Task& task, const std::vector<Piece>& pieces, PieceEncoder& encoder,
              TaskResult& result) {
  switch (task.kind) {
    case TaskKind::kPieces:
      for (std::size_t i = task.first_piece; i < task.last_piece; ++i)
        encoder.encode(pieces[i], result.ids);
      return;
    case TaskKind::kCut:
      encoder.encode(task.cut, result.ids);
      return;
    case TaskKind::kGuess:
      result.boundaries.push_back({task.begin, 0});
      result.resume = encoder.encode_span(
          pieces[task.first_piece], task.begin, task.end, result.ids, [&](std::size_t offset) {
            if (result.boundaries.size() < kMaxBoundaries &&
                offset > result.boundaries.back().offset)
              result.boundaries.push_back({offset, result.ids.size()});
            return false;
          });
      return;
  }
}

// Runs all tasks on `n_threads` threads; the first failure is thrown when all have stopped.
std::vector<TaskResult> run_tasks(const TokenizerParts& parts, const std::vector<Task>& tasks,
                                  const std::vector<Piece>& pieces, std::size_t n_threads) {
  std::vector<TaskResult> results(tasks.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;  // guarded by mutex
  const auto work = [&] {
    try {
      PieceEncoder encoder(parts);
      for (std::size_t i = next++; i < tasks.size(); i = next++)
        run_task(tasks[i], pieces, encoder, results[i]);
    } catch (...) {
      next = tasks.size();
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < n_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  return results;
}

// Puts results together; see piece_encoder.h for kGuess.
class Assembly {
 public:
  Assembly(const TokenizerParts& parts, const std::vector<Piece>& pieces)
      : encoder_(parts), pieces_(&pieces) {}

  void add(const Task& task, TaskResult result) {
    if (task.kind != TaskKind::kGuess) return append(result.ids, 0);
    if (task.begin == 0) resume_ = 0;
    if (resume_ >= task.end) return;  // a match of an earlier task reached over all of this
    std::optional<std::size_t> known = result.ids_before(resume_);
    if (!known) {
      resume_ = encoder_.encode_span((*pieces_)[task.first_piece], resume_, task.end, ids_,
                                     [&](std::size_t offset) {
                                       known = result.ids_before(offset);
                                       return known.has_value();
                                     });
      if (!known) return;
    }
    append(result.ids, *known);
    resume_ = result.resume;
  }

  void reserve(std::size_t n) { ids_.reserve(n); }
  std::vector<std::int32_t> take() { return std::move(ids_); }

 private:
  void append(const std::vector<std::int32_t>& ids, std::size_t from) {
    ids_.insert(ids_.end(), ids.begin() + static_cast<std::ptrdiff_t>(from), ids.end());
  }

  PieceEncoder encoder_;
  const std::vector<Piece>* pieces_;
  std::vector<std::int32_t> ids_;
  std::size_t resume_ = 0;  // in the piece of the tasks at hand
};

}  // namespace

std::vector<std::int32_t> encode_text(const TokenizerParts& parts, std::string_view text,
                                      bool parse_special, const EncodePlan& plan) {
  std::string replaced;
  if (valid_prefix(text) < text.size()) {
    replaced = replace_invalid(text);
    text = replaced;
  }
  const Prepared prepared = prepare(parts, text, parse_special);
  std::size_t n_threads = plan.n_threads > 0 ? static_cast<std::size_t>(plan.n_threads)
                                             : std::max(1U, std::thread::hardware_concurrency());
  const std::vector<Task> tasks =
      TaskList(parts, prepared.pieces, plan.chunk_bytes, /*alone=*/n_threads == 1).take();
  n_threads = std::min(n_threads, tasks.size());

  if (n_threads <= 1) {
    PieceEncoder encoder(parts);
    TaskResult all;
    for (const Task& task : tasks) run_task(task, prepared.pieces, encoder, all);
    return std::move(all.ids);
  }
  std::vector<TaskResult> results = run_tasks(parts, tasks, prepared.pieces, n_threads);
  Assembly assembly(parts, prepared.pieces);
  std::size_t n_ids = 0;
  for (const TaskResult& result : results) n_ids += result.ids.size();
  assembly.reserve(n_ids);
  for (std::size_t i = 0; i < tasks.size(); ++i)
    assembly.add(tasks[i], std::exchange(results[i], TaskResult{}));
  return assembly.take();
}

}  // namespace longhaul::tokenization
