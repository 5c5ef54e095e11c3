// A worker without a model: checks that every command is legal, and picks tokens that depend only
// on the tokens before them. What a request must get back can so be computed without any
// scheduling.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/wire/step.h"

namespace longhaul::test {

// The token after `tokens`, in [first, first + n).
struct TokenRange {
  std::int32_t first = 0;
  std::int32_t n = 1000;
};
std::int32_t token_after(const std::vector<std::int32_t>& tokens, TokenRange range = {});

class FakeWorker {
 public:
  explicit FakeWorker(TokenRange range = {}) : range_(range) {}

  // Adds a test failure for an illegal command.
  StepResult step(const StepCommand& command);

  // Asked before each command; true makes it a StepFailed.
  std::function<bool(const StepCommand&)> fails = [](const StepCommand&) { return false; };

  ErrorCode failure = ErrorCode::kOutOfMemory;  // what it fails with

  std::size_t n_sequences() const { return sequences_.size(); }
  std::size_t n_tokens() const;  // cached now, shared ones counted once
  std::size_t most_tokens() const { return most_tokens_; }
  std::size_t largest_batch() const { return largest_batch_; }
  std::size_t most_decode_rows() const { return most_decode_rows_; }  // with guesses
  std::int64_t n_guesses() const { return n_guesses_; }
  std::int64_t n_true_guesses() const { return n_true_guesses_; }
  std::int64_t n_prefilled() const { return n_prefilled_; }
  const std::vector<ForkSequence>& forked() const { return forked_; }
  const std::vector<SaveSequence>& saved() const { return saved_; }
  // Files that a RestoreSequence finds, by name.
  std::map<std::string, std::vector<std::int32_t>> files;

 private:
  struct Sequence {
    std::vector<std::int32_t> tokens;
    std::size_t n_shared = 0;
    std::optional<std::int32_t> picked;  // must be the next token to come
    std::int64_t n_guesses = 0;          // the last of its tokens
    bool broken = false;
    bool is_restored = false;                     // and nothing came since
    AfterPrefill after = AfterPrefill::kNothing;  // of its newest chunk
  };
  StepDone run(const OpenSequence& command);
  StepDone run(const ForkSequence& command);
  StepDone run(const DropSequences& command);
  StepDone run(const PrefillChunk& command);
  StepDone run(const DecodeBatch& command);
  StepDone run(const Shutdown&) { return {}; }
  StepDone run(const ReportRank&) { return {}; }
  StepDone run(const SaveSequence& command);
  StepDone run(const FinishSave& command);
  StepDone run(const RestoreSequence& command);
  StepDone run(const MeasureRates&) { return {}; }
  void break_sequences(const StepCommand& command);
  PickedToken pick(SequenceId id, const AllowedTokens& allowed);

  TokenRange range_;
  std::map<SequenceId, Sequence> sequences_;
  std::size_t most_tokens_ = 0;
  std::size_t largest_batch_ = 0;
  std::size_t most_decode_rows_ = 0;
  std::int64_t n_guesses_ = 0;
  std::int64_t n_true_guesses_ = 0;
  std::int64_t n_prefilled_ = 0;
  std::vector<ForkSequence> forked_;
  std::vector<SaveSequence> saved_;
  bool is_saving_ = false;
};

}  // namespace longhaul::test
