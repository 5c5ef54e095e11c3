#include "coordinator/draft_model.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "partition/workload.h"

namespace longhaul {

// Null when the step failed, whose sequences are to be dropped then.
std::optional<StepDone> DraftModel::run(StepCommand command, Deadline deadline) {
  link_.send(std::move(command));
  StepResult result = link_.receive(deadline);
  if (auto* done = std::get_if<StepDone>(&result)) return std::move(*done);
  LONGHAUL_LOG(kWarning, kStep, "the draft model: {}", std::get<StepFailed>(result).message);
  return std::nullopt;
}

bool DraftModel::is_known_id(std::int32_t token) const {
  return 0 <= token && token < config_.vocab_size;
}

bool DraftModel::prefill(SequenceId id, std::span<const std::int32_t> tokens, AfterPrefill last,
                         Deadline deadline) {
  while (!tokens.empty()) {
    const auto chunk =
        tokens.first(std::min(tokens.size(), static_cast<std::size_t>(config_.chunk_len)));
    tokens = tokens.subspan(chunk.size());
    const bool is_done = run(PrefillChunk{.sequence = id,
                                          .tokens = {chunk.begin(), chunk.end()},
                                          .after = tokens.empty() ? last : AfterPrefill::kNothing},
                             deadline)
                             .has_value();
    if (!is_done) return false;
  }
  return true;
}

void DraftModel::drop_old_documents(Deadline deadline) {
  for (auto at = shared_.begin(); at != shared_.end();) {
    const bool is_kept =
        !at->document.expired() &&
        static_cast<std::size_t>(std::distance(shared_.begin(), at)) < config_.most_documents;
    if (is_kept) {
      ++at;
    } else {
      to_drop_.push_back(at->id);
      at = shared_.erase(at);
    }
  }
  if (!to_drop_.empty()) run(DropSequences{std::exchange(to_drop_, {})}, deadline);
}

// A sequence of the tokens that all texts on the document begin with.
std::optional<SequenceId> DraftModel::shared_beginning(const DraftText& text, Deadline deadline) {
  const auto same = std::find_if(shared_.begin(), shared_.end(), [&](const Shared& shared) {
    return shared.document.lock() == text.document() && shared.n_tokens == text.n_shared();
  });
  if (same != shared_.end()) return same->id;
  const SequenceId id{n_sequences_++};
  if (!run(OpenSequence{.sequence = id, .sampling = {}}, deadline)) return std::nullopt;
  const auto tokens = text.tokens().first(static_cast<std::size_t>(text.n_shared()));
  if (!prefill(id, tokens, AfterPrefill::kDocumentEnd, deadline)) {
    to_drop_.push_back(id);
    return std::nullopt;
  }
  shared_.push_front({.document = text.document(), .id = id, .n_tokens = text.n_shared()});
  return id;
}

// All of the text but its last token.
bool DraftModel::open(const DraftWish& wish, Known& known, Deadline deadline) {
  const DraftText& text = *wish.text;
  SamplingParams sampling = wish.sampling;
  sampling.n_logprobs = -1;
  sampling.first_position = text.n_left_out();
  const auto n_shared = static_cast<std::size_t>(text.n_shared());
  const std::size_t n_held = text.tokens().size() - 1;
  const bool shares = n_shared > 0 && n_shared <= n_held;
  std::optional<SequenceId> parent;
  if (shares && !(parent = shared_beginning(text, deadline))) return false;
  const SequenceId id{n_sequences_++};
  const bool is_open =
      shares ? run(ForkSequence{.parent = *parent, .child = id, .sampling = sampling}, deadline)
                   .has_value()
             : run(OpenSequence{.sequence = id, .sampling = sampling}, deadline).has_value();
  if (!is_open) return false;
  const std::size_t begin = shares ? n_shared : 0;
  const auto rest = text.tokens().subspan(begin, n_held - begin);
  known = {
      .id = id,
      .held = {text.tokens().begin(), text.tokens().begin() + static_cast<std::ptrdiff_t>(n_held)},
      .n_certain = static_cast<std::int64_t>(n_held)};
  return prefill(id, rest, AfterPrefill::kNothing, deadline);
}

// The small model's sequence as far as it agrees with the text; a new one where it cannot be made
// to. Null where that failed.
DraftModel::Known* DraftModel::catch_up(const DraftWish& wish, Deadline deadline) {
  const std::span<const std::int32_t> text = wish.text->tokens();
  if (!std::all_of(text.begin(), text.end(), [&](std::int32_t t) { return is_known_id(t); }))
    return nullptr;
  const auto at = known_.find(wish.sequence);
  if (at != known_.end()) {
    Known& known = at->second;
    const auto end =
        std::mismatch(text.begin(), text.end() - 1, known.held.begin(), known.held.end());
    const auto n_same = static_cast<std::int64_t>(end.second - known.held.begin());
    if (n_same >= known.n_certain) {
      known.n_wrong = std::ssize(known.held) - n_same;
      known.held.erase(end.second, known.held.end());
      return &known;
    }
    to_drop_.push_back(known.id);
    known_.erase(at);
  }
  Known opened;
  if (!open(wish, opened, deadline)) {
    if (opened.held.size() > 0) to_drop_.push_back(opened.id);
    return nullptr;
  }
  return &known_.insert_or_assign(wish.sequence, std::move(opened)).first->second;
}

// What the texts have more than the sequences, and the first guess behind it.
bool DraftModel::read_news(std::span<Row> rows, Deadline deadline) {
  const std::int64_t most =
      std::max<std::int64_t>(1, Workload::kRowsWithGuesses / std::ssize(rows));
  while (true) {
    DecodeBatch batch{.rows = {}, .kind = DecodeKind::kDraft};
    std::vector<Row*> of_batch;
    for (Row& row : rows) {
      Known& known = *row.known;
      const auto news = row.wish->text->tokens().subspan(known.held.size());
      if (news.empty()) continue;
      const auto part = news.first(std::min(news.size(), static_cast<std::size_t>(most)));
      batch.rows.push_back({.sequence = known.id,
                            .token = part.front(),
                            .guesses = {part.begin() + 1, part.end()},
                            .n_wrong = std::exchange(known.n_wrong, 0)});
      known.n_certain = std::ssize(known.held) + 1;
      known.held.insert(known.held.end(), part.begin(), part.end());
      of_batch.push_back(&row);
    }
    if (batch.rows.empty()) return true;
    const auto done = run(std::move(batch), deadline);
    if (!done) return false;
    for (std::size_t i = 0; i < of_batch.size(); ++i) {
      Row& row = *of_batch[i];
      const std::int32_t token = done->picked.at(i).token;
      const bool is_read = row.known->held.size() == row.wish->text->tokens().size();
      if (is_read && is_known_id(token)) row.guesses.push_back(token);
    }
  }
}

// One guess more at a time, of those that want more.
bool DraftModel::look_further(std::span<Row> rows, Deadline deadline) {
  for (std::size_t n = 1;; ++n) {
    DecodeBatch batch{.rows = {}, .kind = DecodeKind::kDraftFurther};
    std::vector<Row*> of_batch;
    for (Row& row : rows) {
      if (row.guesses.size() < n || static_cast<std::int64_t>(n) >= row.wish->most) continue;
      batch.rows.push_back({.sequence = row.known->id, .token = row.guesses.back()});
      row.known->held.push_back(row.guesses.back());
      of_batch.push_back(&row);
    }
    if (batch.rows.empty()) return true;
    const auto done = run(std::move(batch), deadline);
    if (!done) return false;
    for (std::size_t i = 0; i < of_batch.size(); ++i) {
      const std::int32_t token = done->picked.at(i).token;
      if (is_known_id(token)) of_batch[i]->guesses.push_back(token);
    }
  }
}

std::vector<std::vector<std::int32_t>> DraftModel::guess(std::span<const DraftWish> wishes,
                                                         Deadline deadline) {
  drop_old_documents(deadline);
  std::vector<Row> rows;
  std::vector<std::size_t> wish_of;  // each row's
  for (std::size_t i = 0; i < wishes.size(); ++i) {
    if (Known* known = catch_up(wishes[i], deadline)) {
      rows.push_back({.wish = &wishes[i], .known = known, .guesses = {}});
      wish_of.push_back(i);
    }
  }
  std::vector<std::vector<std::int32_t>> guesses(wishes.size());
  if (rows.empty()) return guesses;
  const bool is_good = read_news(rows, deadline) && look_further(rows, deadline);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (is_good) {
      guesses[wish_of[r]] = std::move(rows[r].guesses);
    } else {  // whatever it was, their caches cannot be trusted
      to_drop_.push_back(rows[r].known->id);
      known_.erase(rows[r].wish->sequence);
    }
  }
  return guesses;
}

void DraftModel::forget(std::span<const SequenceId> sequences) {
  for (const SequenceId sequence : sequences) {
    const auto at = known_.find(sequence);
    if (at == known_.end()) continue;
    to_drop_.push_back(at->second.id);
    known_.erase(at);
  }
}

}  // namespace longhaul
