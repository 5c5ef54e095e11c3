// Runs the tasks of a text on several threads and puts the ids together.
#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "model/tokenizer/encode_tasks.h"
#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

constexpr std::size_t kMaxBoundaries = 1024;  // kept per guessed task

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
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < n_threads; ++i) threads.emplace_back(work);
    work();
  }
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
                                      const SpecialTokens& special, const EncodePlan& plan) {
  std::string replaced;
  if (valid_prefix(text) < text.size()) {
    require(special.literal.empty(), "a text with literal ranges must be valid UTF-8");
    replaced = replace_invalid(text);
    text = replaced;
  }
  const Prepared prepared = prepare(parts, text, special);
  std::size_t n_threads = plan.n_threads > 0 ? static_cast<std::size_t>(plan.n_threads)
                                             : std::max(1U, std::thread::hardware_concurrency());
  const std::vector<Task> tasks =
      make_tasks(parts, prepared.pieces, plan.chunk_bytes, /*alone=*/n_threads == 1);
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
