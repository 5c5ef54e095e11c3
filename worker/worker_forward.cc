// The worker's steps that run the model, prefill and decode, and what is asked of their last hidden
// states.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "kernels/copy_rows.h"
#include "kernels/cpu/threads.h"
#include "worker/worker.h"

namespace longhaul {

namespace {

// What is whole after a chunk, if anything.
std::optional<KeepWhen> end_of(AfterPrefill after) {
  switch (after) {
    case AfterPrefill::kNothing:
    case AfterPrefill::kSharedEnd:
      return std::nullopt;
    case AfterPrefill::kDocumentEnd:
      return KeepWhen::kAfterDocument;
    case AfterPrefill::kSample:
    case AfterPrefill::kPromptEnd:
      return KeepWhen::kAfterPrompt;
  }
  return std::nullopt;
}

// Of each row's tokens those that count: behind a wrong guess everything is. `picked` has one for
// each token of the command, or none. Returns how many of each row count.
std::vector<std::int64_t> keep_true(const DecodeBatch& command, std::vector<PickedToken>& picked) {
  std::vector<std::int64_t> n_true;
  std::vector<PickedToken> kept;
  std::size_t first = 0;  // of the row's
  for (const DecodeBatch::Row& row : command.rows) {
    std::size_t n = 1;
    while (n <= row.guesses.size() && picked[first + n - 1].token == row.guesses[n - 1]) ++n;
    for (std::size_t i = 0; i < n; ++i) kept.push_back(std::move(picked[first + i]));
    n_true.push_back(static_cast<std::int64_t>(n));
    first += 1 + row.guesses.size();
  }
  picked = std::move(kept);
  return n_true;
}

// The same where all tokens count: what was picked behind the last one is kept.
std::vector<std::int64_t> keep_last(const DecodeBatch& command, std::vector<PickedToken>& picked) {
  std::vector<std::int64_t> n_tokens;
  std::vector<PickedToken> kept;
  std::size_t end = 0;
  for (const DecodeBatch::Row& row : command.rows) {
    n_tokens.push_back(1 + std::ssize(row.guesses));
    end += 1 + row.guesses.size();
    kept.push_back(std::move(picked[end - 1]));
  }
  picked = std::move(kept);
  return n_tokens;
}

}  // namespace

// Runs what the ranks do together. When it fails here, the others are told: nobody waits. Only
// where reading the logits is the last thing that a step does (`reading_is_last`) nobody waits for
// it: logits that are no numbers then fail the step as they do on one rank, and the job goes on.
template <typename Work>
StepDone Worker::together(const Work& work, bool reading_is_last) {
  logits_reader_.forget_failure();
  try {
    return work();
  } catch (const std::exception& error) {
    const bool fails_alone = reading_is_last && logits_reader_.failed_to_read();
    if (comm_.size() > 1 && !fails_alone) comm_.abort(ErrorCode::kPeerFailed, error.what());
    throw;
  }
}

// Runs a pass over so many tokens; a full cache is told with what fills it.
template <typename Pass>
auto Worker::forward(std::size_t n_tokens, const Pass& pass) {
  try {
    return pass(*forward_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    throw_cache_full(n_tokens, error.what());
  }
}

StepDone Worker::run(const PrefillChunk& command) {
  Sequence& sequence = find_settled(command.sequence);
  require(!command.tokens.empty(),
          fmt::format("sequence {}: a chunk without tokens", command.sequence.value));
  for (const std::int32_t token : command.tokens) check_token(token);
  check_allowed(command.allowed);
  sequence.is_whole = false;
  StepDone done = together([&] { return prefill(command, sequence); },
                           /*reading_is_last=*/command.score_logprobs < 0);
  sequence.is_whole = true;
  return done;
}

void Worker::note_classes(Sequence& sequence, std::span<const std::int32_t> tokens) const {
  if (token_classes_ == nullptr) return;
  sequence.cache.classes().set({sequence.n_tokens}, *token_classes_, tokens);
}

StepDone Worker::prefill(const PrefillChunk& command, Sequence& sequence) {
  note_classes(sequence, command.tokens);
  const bool scores = command.score_logprobs >= 0;
  const ForwardChunk chunk{.cache = sequence.cache,
                           .first_position = {sequence.n_tokens},
                           .tokens = command.tokens,
                           .wanted = scores ? WantedRows::kAll : WantedRows::kLast};
  const HiddenRows hidden =
      forward(command.tokens.size(), [&](Forward& pass) { return pass.prefill(chunk); });
  StepDone done;
  if (scores) done.scored = score(command, sequence, hidden);
  sequence.n_tokens = chunk.positions().end;
  if (const auto when = end_of(command.after)) {
    forward(command.tokens.size(), [&](Forward& pass) { pass.compact(sequence.cache, *when); });
  }
  if (forward_->answers()) answer_last(command, sequence, hidden.rows, done);
  return done;
}

// The last row of a chunk: kept for the next chunk, and asked for the next token.
void Worker::answer_last(const PrefillChunk& command, Sequence& sequence,
                         const TensorView<const float, 2>& hidden, StepDone& done) {
  const Extent last{hidden.dim(0) - 1, hidden.dim(0)};
  Sequence* const row = &sequence;
  keep_last_hidden({&row, 1}, hidden, std::array{last.begin});
  if (command.after != AfterPrefill::kSample) return;
  const LogitsQuestion question{.sequence = command.sequence,
                                .sampling = &sequence.sampling,
                                .allowed = command.allowed.get(),
                                .rules = &sequence.rules,
                                .position = {sequence.n_tokens},
                                .n_logprobs = sequence.sampling.n_logprobs};
  logits_reader_.answer(hidden.slice(0, last), {&question, 1}, done.picked);
}

StepDone Worker::run(const DecodeBatch& command) {
  if (command.rows.empty()) return {};
  require(command.kind == DecodeKind::kAnswer || !place_,
          "a draft model runs on one rank alone, not on a ring");
  std::vector<Sequence*> rows;
  std::unordered_set<SequenceId> seen;
  for (const DecodeBatch::Row& row : command.rows) {
    require(seen.insert(row.sequence).second,
            fmt::format("sequence {} is twice in the batch", row.sequence.value));
    rows.push_back(&find_whole(row.sequence));
    check_row(row, command.kind, *rows.back());
  }
  for (Sequence* sequence : rows) sequence->is_whole = false;
  StepDone done = together([&] { return decode(command, rows); }, /*reading_is_last=*/true);
  for (Sequence* sequence : rows) sequence->is_whole = true;
  return done;
}

void Worker::check_row(const DecodeBatch::Row& row, DecodeKind kind,
                       const Sequence& sequence) const {
  check_token(row.token);
  check_allowed(row.allowed);
  for (const std::int32_t guess : row.guesses) check_token(guess);
  require(row.guesses.empty() || row.allowed == nullptr,
          fmt::format("sequence {}: guesses where only some tokens are allowed: what is allowed "
                      "behind them is not said",
                      row.sequence.value));
  require(0 <= row.n_wrong && row.n_wrong <= static_cast<std::int64_t>(sequence.guesses.size()),
          fmt::format("sequence {}: {} wrong guesses of {}", row.sequence.value, row.n_wrong,
                      sequence.guesses.size()));
  require(kind != DecodeKind::kDraftFurther || (row.guesses.empty() && row.n_wrong == 0),
          fmt::format("sequence {}: a row that looks further has one token, and takes none back",
                      row.sequence.value));
  require(
      kind == DecodeKind::kAnswer || !sequence.rules.is_active(),
      fmt::format("sequence {}: a draft model's sequence has no penalties, which could not take "
                  "back what they have counted",
                  row.sequence.value));
  const bool may_be_wrong = !row.guesses.empty() || kind == DecodeKind::kDraftFurther;
  if (may_be_wrong && !layout_.heads().can_take_back()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "guesses for heads that drop or merge tokens at every step, or read chosen pages: what a "
        "wrong guess changed there cannot be undone");
  }
}

void Worker::settle(Sequence& sequence, std::int64_t n_wrong) {
  if (n_wrong > 0) {
    sequence.n_tokens -= n_wrong;
    sequence.cache.take_back({sequence.n_tokens});
    sequence.guesses.resize(sequence.guesses.size() - static_cast<std::size_t>(n_wrong));
  }
  for (const std::int32_t token : sequence.guesses) sequence.rules.add(token);
  sequence.guesses.clear();
}

StepDone Worker::decode(const DecodeBatch& command, std::span<Sequence* const> rows) {
  std::vector<DecodeRow> decode_rows;
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DecodeBatch::Row& row = command.rows[i];
    const bool is_further = command.kind == DecodeKind::kDraftFurther;
    if (!is_further) settle(*rows[i], row.n_wrong);
    const auto n_guesses = static_cast<std::int64_t>(row.guesses.size());
    decode_rows.push_back({.cache = &rows[i]->cache,
                           .position = {rows[i]->n_tokens},
                           .n_guesses = n_guesses,
                           .n_uncertain = is_further ? std::ssize(rows[i]->guesses) + 1 : 0});
    tokens.push_back(row.token);
    tokens.insert(tokens.end(), row.guesses.begin(), row.guesses.end());
    note_classes(*rows[i], std::span(tokens).last(row.guesses.size() + 1));
  }
  const bool guesses = tokens.size() > rows.size();
  std::optional<PhaseTimer> whole;
  std::optional<NotedStep> noted;
  if (!guesses && decode_graphs_ && queue_.device().kind == Device::kCuda &&
      forward_->may_be_noted()) {
    whole.emplace(compute_.times(), Phase::kWhole);
    noted.emplace(queue_.stream());
  }
  const auto hidden =
      forward(tokens.size(), [&](Forward& pass) { return pass.decode(decode_rows, tokens); });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i]->n_tokens += decode_rows[i].n_tokens();
    if (command.kind == DecodeKind::kDraftFurther) {
      rows[i]->guesses.push_back(command.rows[i].token);
    } else {
      rows[i]->guesses = command.rows[i].guesses;
      rows[i]->rules.add(command.rows[i].token);
    }
  }
  std::vector<std::int64_t> last(rows.size());  // of each row, among all tokens
  std::iota(last.begin(), last.end(), 0);
  if (!guesses && forward_->answers()) keep_last_hidden(rows, hidden, last);
  StepDone done;
  forward_->pick(hidden, picks(command, rows).questions, logits_reader_, done.picked);
  submit_noted(queue_.stream());  // where this rank has nothing to read
  if (!guesses || !forward_->answers()) return done;
  last = command.kind == DecodeKind::kAnswer ? keep_true(command, done.picked)
                                             : keep_last(command, done.picked);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    last[i] += first - 1;
    first += decode_rows[i].n_tokens();
  }
  keep_last_hidden(rows, hidden, last);
  return done;
}

// What is asked of each row after its token was appended, and after each of its guesses.
Worker::Picks Worker::picks(const DecodeBatch& command, std::span<Sequence* const> rows) {
  Picks picks;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Sequence& sequence = *rows[i];
    const DecodeBatch::Row& row = command.rows[i];
    const auto n_guesses = static_cast<std::int64_t>(row.guesses.size());
    const LogitAdjuster* rules = &sequence.rules;
    for (std::int64_t guess = 0; guess <= n_guesses; ++guess) {
      if (guess > 0 && rules->is_active()) {
        LogitAdjuster& more = picks.rules.emplace_back(*rules);
        more.add(row.guesses[static_cast<std::size_t>(guess - 1)]);
        rules = &more;
      }
      picks.questions.push_back({.sequence = row.sequence,
                                 .sampling = &sequence.sampling,
                                 .allowed = row.allowed.get(),
                                 .rules = rules,
                                 .position = {sequence.n_tokens - n_guesses + guess},
                                 .n_logprobs = sequence.sampling.n_logprobs});
    }
  }
  return picks;
}

// Token i of a chunk, scored by whoever has the hidden row of the token before it.
LogitsQuestion Worker::score_question(const PrefillChunk& command, const Sequence& sequence,
                                      std::int64_t i) const {
  return {.sequence = command.sequence,
          .token = command.tokens[static_cast<std::size_t>(i)],
          .position = {sequence.n_tokens + i},
          .n_logprobs = command.score_logprobs};
}

// The chunk's tokens, each by the hidden row of the token before it, in token order on the rank
// that answers. The first one's is of the chunk before.
std::vector<PickedToken> Worker::score(const PrefillChunk& command, const Sequence& sequence,
                                       const HiddenRows& hidden) {
  const Extent chunk{sequence.n_tokens,
                     sequence.n_tokens + static_cast<std::int64_t>(command.tokens.size())};
  std::vector<PickedToken> own;
  std::int64_t row = 0;
  for (const Extent& tokens : hidden.tokens) {
    std::vector<LogitsQuestion> questions;
    for (std::int64_t t = tokens.begin; t < std::min(tokens.end, chunk.end - 1); ++t) {
      questions.push_back(score_question(command, sequence, t + 1 - chunk.begin));
    }
    const auto n = static_cast<std::int64_t>(questions.size());
    logits_reader_.answer(hidden.rows.slice(0, {row, row + n}), questions, own);
    row += tokens.size();
  }
  std::vector<PickedToken> rest = forward_->gather_scored(chunk, std::move(own));
  if (!forward_->answers() || chunk.begin == 0) return rest;
  if (sequence.last_hidden == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition,
                "the next token cannot be scored: the saved caches that the sequence came from "
                "have no hidden row of their last token");
  }
  std::vector<PickedToken> scored;
  const TensorView<const float, 2> before = sequence.last_hidden->view();
  const LogitsQuestion first = score_question(command, sequence, 0);
  logits_reader_.answer(before, {&first, 1}, scored);
  std::move(rest.begin(), rest.end(), std::back_inserter(scored));
  return scored;
}

StepDone Worker::run(const MeasureRates& command) {
  return together(
      [&] {
        const DeviceProbeArgs args{.device = queue_.device(),
                                   .clock = command.clock,
                                   .cpu_read_bytes = command.cpu_read_bytes};
        require(args.cpu_read_bytes >= 1 << 20, "rates of reading need memory to read");
        if (!probes_ || !(args == probe_args_)) {
          probes_ = {};  // its memory first
          probes_ = make_probes(args);
          probe_args_ = args;
        }
        comm_.barrier();  // ranks that share a host then share its memory
        StepDone done;
        done.rates.push_back({.rank = rank_, .n_threads = kernel_threads(), .rates = probes_()});
        return done;
      },
      /*reading_is_last=*/false);
}

void Worker::keep_last_hidden(std::span<Sequence* const> rows,
                              const TensorView<const float, 2>& hidden,
                              std::span<const std::int64_t> hidden_rows) {
  std::vector<CopyRowsItem> copies;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::shared_ptr<DeviceTensor<float, 2>>& kept = rows[i]->last_hidden;
    if (kept == nullptr || kept.use_count() > 1) {
      kept = std::make_shared<DeviceTensor<float, 2>>(queue_.stream(),
                                                      std::array{std::int64_t{1}, hidden.dim(1)});
    }
    copies.push_back({.to = reinterpret_cast<std::byte*>(kept->data()),
                      .from = reinterpret_cast<const std::byte*>(hidden[hidden_rows[i]].data()),
                      .row_bytes = kept->bytes(),
                      .n_rows = 1});
  }
  copy_rows(queue_.stream(), copies);
}

}  // namespace longhaul
