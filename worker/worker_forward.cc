// The worker's steps that run the model: prefill and decode, alone or on a ring, and what is asked
// of their last hidden states.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "kernels/copy_rows.h"
#include "worker/worker.h"

namespace longhaul {

// Runs what the ranks do together. When it fails here, the others are told: nobody waits.
template <typename Work>
StepDone Worker::together(const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    if (ring_) ring_->abort(ErrorCode::kPeerFailed, error.what());
    throw;
  }
}

StepDone Worker::run(const PrefillChunk& command) {
  Sequence& sequence = find_whole(command.sequence);
  require(!command.tokens.empty(),
          fmt::format("sequence {}: a chunk without tokens", command.sequence.value));
  for (const std::int32_t token : command.tokens) check_token(token);
  sequence.is_whole = false;
  StepDone done = together([&] {
    return ring_ ? prefill_on_ring(command, sequence) : prefill_alone(command, sequence);
  });
  sequence.is_whole = true;
  return done;
}

StepDone Worker::prefill_alone(const PrefillChunk& command, Sequence& sequence) {
  const auto n_new = static_cast<std::int64_t>(command.tokens.size());
  const BatchSegment segment{
      .cache = &sequence.cache, .rows = {0, n_new}, .first_position = sequence.n_tokens};
  const bool scores = command.score_logprobs >= 0;
  const auto hidden = forward({.tokens = command.tokens,
                               .segments = {&segment, 1},
                               .wanted = Extent{scores ? 0 : n_new - 1, n_new}});
  StepDone done;
  if (scores) done.scored = score(command, sequence, hidden);
  sequence.n_tokens += n_new;
  answer_last(command, sequence, hidden, done);
  return done;
}

StepDone Worker::prefill_on_ring(const PrefillChunk& command, Sequence& sequence) {
  const auto n_new = static_cast<std::int64_t>(command.tokens.size());
  const bool scores = command.score_logprobs >= 0;
  const WantedRows wanted = scores ? WantedRows::kAll : WantedRows::kLast;
  const std::int64_t first = sequence.n_tokens;
  const auto hidden = ring_->prefill(sequence.cache, first, command.tokens, wanted);
  StepDone done;
  if (scores && ring_->is_last_stage()) {
    const RingChunk chunk = ring_->chunk_of(first, n_new, wanted);
    done.scored = ring_->gather_scored(chunk, score_own_slabs(command, sequence, chunk, hidden));
    if (ring_->answers() && first > 0) {
      const TensorView<const float, 2> before = sequence.last_hidden->view();
      const LogitsQuestion question = score_question(command, sequence, 0);
      std::vector<PickedToken> of_first;
      logits_reader_.answer(before, {&question, 1}, of_first);
      done.scored.insert(done.scored.begin(), std::move(of_first.front()));
    }
  }
  sequence.n_tokens += n_new;
  if (ring_->answers()) answer_last(command, sequence, hidden, done);
  return done;
}

// The last row of a chunk: kept for the next chunk, and asked for the next token.
void Worker::answer_last(const PrefillChunk& command, Sequence& sequence,
                         const TensorView<const float, 2>& hidden, StepDone& done) {
  const Extent last{hidden.dim(0) - 1, hidden.dim(0)};
  Sequence* const row = &sequence;
  keep_last_hidden({&row, 1}, hidden.slice(0, last));
  if (command.after != AfterPrefill::kSample) return;
  const LogitsQuestion question{.sequence = command.sequence,
                                .sampling = &sequence.sampling,
                                .position = sequence.n_tokens,
                                .n_logprobs = sequence.sampling.n_logprobs};
  logits_reader_.answer(hidden.slice(0, last), {&question, 1}, done.picked);
}

StepDone Worker::run(const DecodeBatch& command) {
  if (command.rows.empty()) return {};
  std::vector<Sequence*> rows;
  std::vector<std::int32_t> tokens;
  std::unordered_set<SequenceId> seen;
  for (const DecodeBatch::Row& row : command.rows) {
    check_token(row.token);
    require(seen.insert(row.sequence).second,
            fmt::format("sequence {} is twice in the batch", row.sequence.value));
    rows.push_back(&find_whole(row.sequence));
    tokens.push_back(row.token);
  }
  for (Sequence* sequence : rows) sequence->is_whole = false;
  StepDone done = together([&] {
    StepDone answer;
    if (ring_) {
      decode_on_ring(command, rows, tokens, answer);
    } else {
      decode_alone(command, rows, tokens, answer);
    }
    return answer;
  });
  for (Sequence* sequence : rows) sequence->is_whole = true;
  return done;
}

void Worker::decode_alone(const DecodeBatch& command, std::span<Sequence* const> rows,
                          std::span<const std::int32_t> tokens, StepDone& done) {
  std::vector<BatchSegment> segments;
  for (Sequence* sequence : rows) {
    const auto i = static_cast<std::int64_t>(segments.size());
    segments.push_back(
        {.cache = &sequence->cache, .rows = {i, i + 1}, .first_position = sequence->n_tokens});
  }
  std::optional<PhaseTimer> whole;
  std::optional<NotedStep> noted;
  if (decode_graphs_ && queue_.device().kind == Device::kCuda) {
    whole.emplace(compute_.times(), Phase::kWhole);
    noted.emplace(queue_.stream());
  }
  const auto hidden = forward({.tokens = tokens, .segments = segments});
  for (Sequence* row : rows) ++row->n_tokens;
  keep_last_hidden(rows, hidden);
  logits_reader_.answer(hidden, picks(command, rows), done.picked);
}

void Worker::decode_on_ring(const DecodeBatch& command, std::span<Sequence* const> rows,
                            std::span<const std::int32_t> tokens, StepDone& done) {
  std::vector<DecodeRow> decode_rows;
  for (Sequence* sequence : rows) decode_rows.push_back({&sequence->cache, sequence->n_tokens});
  const auto hidden = ring_->decode(decode_rows, tokens);
  for (Sequence* row : rows) ++row->n_tokens;
  if (ring_->answers()) keep_last_hidden(rows, hidden);
  if (ring_->is_last_stage()) {
    ring_->pick(hidden, picks(command, rows), logits_reader_, done.picked);
  }
}

// What is asked of each row after its token was appended.
std::vector<LogitsQuestion> Worker::picks(const DecodeBatch& command,
                                          std::span<Sequence* const> rows) {
  std::vector<LogitsQuestion> questions;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    questions.push_back({.sequence = command.rows[i].sequence,
                         .sampling = &rows[i]->sampling,
                         .position = rows[i]->n_tokens,
                         .n_logprobs = rows[i]->sampling.n_logprobs});
  }
  return questions;
}

// Token i of a chunk, scored by whoever has the hidden row of the token before it.
LogitsQuestion Worker::score_question(const PrefillChunk& command, const Sequence& sequence,
                                      std::int64_t i) const {
  return {.sequence = command.sequence,
          .token = command.tokens[static_cast<std::size_t>(i)],
          .position = sequence.n_tokens + i,
          .n_logprobs = command.score_logprobs};
}

// The tokens after those of this rank's slabs.
std::vector<PickedToken> Worker::score_own_slabs(const PrefillChunk& command,
                                                 const Sequence& sequence, const RingChunk& chunk,
                                                 const TensorView<const float, 2>& hidden) {
  std::vector<PickedToken> scored;
  std::int64_t row = 0;
  for (const Extent& slab : chunk.made[static_cast<std::size_t>(ring_->stage().position())]) {
    std::vector<LogitsQuestion> questions;
    for (std::int64_t t = slab.begin; t < std::min(slab.end, chunk.tokens.end - 1); ++t) {
      questions.push_back(score_question(command, sequence, t + 1 - chunk.tokens.begin));
    }
    const auto n = static_cast<std::int64_t>(questions.size());
    logits_reader_.answer(hidden.slice(0, {row, row + n}), questions, scored);
    row += slab.size();
  }
  return scored;
}

// Token i of the chunk is scored by the hidden row of the token before it.
std::vector<PickedToken> Worker::score(const PrefillChunk& command, const Sequence& sequence,
                                       const TensorView<const float, 2>& hidden) {
  const auto n_new = static_cast<std::int64_t>(command.tokens.size());
  std::vector<LogitsQuestion> questions;
  for (std::int64_t i = 0; i < n_new; ++i) {
    questions.push_back(score_question(command, sequence, i));
  }
  std::vector<PickedToken> scored;
  if (sequence.n_tokens > 0) {
    const TensorView<const float, 2> before = sequence.last_hidden->view();
    logits_reader_.answer(before, std::span(questions).first(1), scored);
  }
  logits_reader_.answer(hidden.slice(0, {0, n_new - 1}), std::span(questions).subspan(1), scored);
  return scored;
}

TensorView<const float, 2> Worker::forward(const Batch& batch) {
  try {
    return transformer_.forward(batch);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    throw_cache_full(batch, error.what());
  }
}

void Worker::keep_last_hidden(std::span<Sequence* const> rows,
                              const TensorView<const float, 2>& hidden) {
  std::vector<CopyRowsItem> copies;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::shared_ptr<DeviceTensor<float, 2>>& kept = rows[i]->last_hidden;
    if (kept == nullptr || kept.use_count() > 1) {
      kept = std::make_shared<DeviceTensor<float, 2>>(queue_.stream(),
                                                      std::array{std::int64_t{1}, hidden.dim(1)});
    }
    copies.push_back(
        {.to = reinterpret_cast<std::byte*>(kept->data()),
         .from = reinterpret_cast<const std::byte*>(hidden[static_cast<std::int64_t>(i)].data()),
         .row_bytes = kept->bytes(),
         .n_rows = 1});
  }
  copy_rows(queue_.stream(), copies);
}

}  // namespace longhaul
