#include "tests/unit/coordinator/fake_worker.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace longhaul::test {

std::int32_t token_after(const std::vector<std::int32_t>& tokens, TokenRange range) {
  std::uint64_t hash = 1469598103934665603ULL;
  for (const std::int32_t token : tokens)
    hash = (hash ^ static_cast<std::uint64_t>(token + 1)) * 1099511628211ULL;
  return range.first +
         static_cast<std::int32_t>((hash >> 20) % static_cast<std::uint64_t>(range.n));
}

StepResult FakeWorker::step(const StepCommand& command) {
  if (fails(command)) {
    if (std::holds_alternative<FinishSave>(command)) is_saving_ = false;
    break_sequences(command);
    return StepFailed{failure, "made to fail"};
  }
  // What was sent before its text was known to be lost.
  const auto* prefill = std::get_if<PrefillChunk>(&command);
  const auto* save = std::get_if<SaveSequence>(&command);
  if (prefill != nullptr || save != nullptr) {
    const auto at = sequences_.find(prefill != nullptr ? prefill->sequence : save->sequence);
    if (at != sequences_.end() && at->second.broken)
      return StepFailed{ErrorCode::kFailedPrecondition, "the sequence was in a step that failed"};
  }
  StepDone done = std::visit([&](const auto& c) { return run(c); }, command);
  most_tokens_ = std::max(most_tokens_, n_tokens());
  done.kv_bytes_in_use = n_tokens();
  done.seconds = 0.001;
  return done;
}

std::size_t FakeWorker::n_tokens() const {
  std::size_t n = 0;
  for (const auto& [id, sequence] : sequences_) n += sequence.tokens.size() - sequence.n_shared;
  return n;
}

void FakeWorker::break_sequences(const StepCommand& command) {
  if (const auto* prefill = std::get_if<PrefillChunk>(&command)) {
    sequences_.at(prefill->sequence).broken = true;
  } else if (const auto* decode = std::get_if<DecodeBatch>(&command)) {
    for (const auto& row : decode->rows) sequences_.at(row.sequence).broken = true;
  }
}

StepDone FakeWorker::run(const OpenSequence& command) {
  EXPECT_TRUE(sequences_.try_emplace(command.sequence).second) << "opened twice";
  return {};
}

StepDone FakeWorker::run(const ForkSequence& command) {
  forked_.push_back(command);
  const auto parent = sequences_.find(command.parent);
  if (parent == sequences_.end() || parent->second.broken) {
    ADD_FAILURE() << "fork of a sequence that is not there or broken";
    return {};
  }
  EXPECT_TRUE(parent->second.after == AfterPrefill::kDocumentEnd ||
              parent->second.after == AfterPrefill::kSharedEnd || parent->second.is_restored)
      << "fork before the end of what is shared";
  Sequence child = parent->second;
  child.after = AfterPrefill::kNothing;
  child.is_restored = false;
  child.n_shared = child.tokens.size();
  child.picked.reset();
  EXPECT_TRUE(sequences_.emplace(command.child, std::move(child)).second) << "child exists";
  return {};
}

StepDone FakeWorker::run(const DropSequences& command) {
  EXPECT_FALSE(command.sequences.empty());
  for (const SequenceId id : command.sequences)
    EXPECT_EQ(sequences_.erase(id), 1U) << "drop of sequence " << id.value << ", not there";
  return {};
}

StepDone FakeWorker::run(const PrefillChunk& command) {
  EXPECT_FALSE(command.tokens.empty());
  const auto at = sequences_.find(command.sequence);
  if (at == sequences_.end() || at->second.broken || at->second.picked) {
    ADD_FAILURE() << "prefill of a sequence that cannot take it";
    return {};
  }
  EXPECT_EQ(at->second.after, AfterPrefill::kNothing) << "a chunk after its text's end";
  at->second.after = command.after;
  at->second.is_restored = false;
  StepDone done;
  for (const std::int32_t token : command.tokens) {
    if (command.score_logprobs >= 0 && !at->second.tokens.empty())
      done.scored.push_back({command.sequence, token, -0.5F, {}});
    at->second.tokens.push_back(token);
  }
  n_prefilled_ += static_cast<std::int64_t>(command.tokens.size());
  if (command.after == AfterPrefill::kSample)
    done.picked.push_back(pick(command.sequence, command.allowed));
  return done;
}

StepDone FakeWorker::run(const DecodeBatch& command) {
  EXPECT_FALSE(command.rows.empty());
  largest_batch_ = std::max(largest_batch_, command.rows.size());
  std::size_t n_rows = 0;
  StepDone done;
  for (const DecodeBatch::Row& row : command.rows) {
    const auto at = sequences_.find(row.sequence);
    if (at == sequences_.end() || at->second.broken || at->second.picked != row.token) {
      ADD_FAILURE() << "decode of a sequence that is not ready, or with another token";
      return done;
    }
    Sequence& sequence = at->second;
    EXPECT_LE(row.n_wrong, sequence.n_guesses);
    sequence.tokens.resize(sequence.tokens.size() - static_cast<std::size_t>(row.n_wrong));
    sequence.tokens.push_back(row.token);
    done.picked.push_back(pick(row.sequence, row.allowed));
    bool is_right = true;
    for (const std::int32_t guess : row.guesses) {
      is_right = is_right && sequence.picked == guess;
      sequence.tokens.push_back(guess);
      if (is_right) done.picked.push_back(pick(row.sequence, nullptr));
      n_true_guesses_ += is_right ? 1 : 0;
    }
    sequence.n_guesses = static_cast<std::int64_t>(row.guesses.size());
    n_guesses_ += sequence.n_guesses;
    n_rows += 1 + row.guesses.size();
  }
  most_decode_rows_ = std::max(most_decode_rows_, n_rows);
  return done;
}

StepDone FakeWorker::run(const SaveSequence& command) {
  EXPECT_FALSE(is_saving_) << "two at a time";
  is_saving_ = command.goes_on;
  const auto at = sequences_.find(command.sequence);
  if (at == sequences_.end() || at->second.broken || at->second.tokens != command.tokens) {
    ADD_FAILURE() << "saving a sequence that is not there, broken, or of other tokens";
    return {};
  }
  saved_.push_back(command);
  return {};
}

StepDone FakeWorker::run(const FinishSave& /*command*/) {
  is_saving_ = false;  // or its beginning failed
  return {};
}

StepDone FakeWorker::run(const RestoreSequence& command) {
  const auto tokens = files.find(command.name);
  const auto [at, is_new] = sequences_.try_emplace(command.sequence);
  EXPECT_TRUE(is_new) << "restored over a sequence";
  if (tokens == files.end() ||
      static_cast<std::int64_t>(tokens->second.size()) != command.n_tokens) {
    ADD_FAILURE() << "restoring what is not there";
    return {};
  }
  at->second.tokens = tokens->second;
  at->second.is_restored = true;
  return {};
}

// Of allowed tokens one whose place among them depends on the tokens before.
PickedToken FakeWorker::pick(SequenceId id, const AllowedTokens& allowed) {
  Sequence& sequence = sequences_.at(id);
  if (allowed == nullptr) {
    sequence.picked = token_after(sequence.tokens, range_);
  } else {
    std::vector<std::int32_t> ids;
    allowed->for_each([&](std::int64_t token) { ids.push_back(static_cast<std::int32_t>(token)); });
    EXPECT_FALSE(ids.empty());
    const TokenRange places{0, static_cast<std::int32_t>(ids.size())};
    sequence.picked = ids.at(static_cast<std::size_t>(token_after(sequence.tokens, places)));
  }
  return {id, *sequence.picked, -0.25F, {{*sequence.picked, -0.25F}}};
}

}  // namespace longhaul::test
