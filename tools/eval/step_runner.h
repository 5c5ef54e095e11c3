// Drives the ranks of a replica by their link: single steps, and prompts chunk by chunk. What
// evaluations and benchmarks run a model with, however many ranks there are.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "cluster/wire/link.h"

namespace longhaul {

struct StepRunnerConfig {
  std::int64_t chunk_len = 2048;  // tokens of a prefill step
  // Chunks sent before the result of the first is there, so that ranks never wait for this side and
  // stages work at the same time: one more than there are stages.
  std::size_t n_ahead = 2;
  std::optional<std::size_t> kv_limit_bytes = std::nullopt;  // on all ranks; more is a failure
  std::chrono::milliseconds step_timeout = std::chrono::hours(24);
};

struct StepPrompt {
  SequenceId sequence;
  std::span<const std::int32_t> tokens;
  AfterPrefill after = AfterPrefill::kNothing;  // the last chunk
  std::int64_t score_logprobs = -1;             // as PrefillChunk has it
};

// Used by one thread; the link must outlive it. Failed steps are exceptions: every call may throw
// Error with the ranks' code and message, and what the link throws.
class StepRunner {
 public:
  StepRunner(Link& link, const StepRunnerConfig& config) : link_(link), config_(config) {}

  // Sends a command and waits for its result.
  StepDone run(StepCommand command);

  // Prefills a prompt of at least one token. `on_chunk` is told every chunk's result, in order, and
  // how many tokens have been read by then; false stops: the chunks under way are finished, and
  // told. Returns how many tokens were read.
  using OnChunk = std::function<bool(const StepDone& done, std::int64_t n_read)>;
  std::int64_t prefill(const StepPrompt& prompt, const OnChunk& on_chunk);
  // The whole prompt; the last chunk's result.
  StepDone prefill(const StepPrompt& prompt);

 private:
  StepResult receive();
  StepDone checked(StepResult result) const;
  StepDone receive_one_of(std::size_t n_under_way);

  Link& link_;
  StepRunnerConfig config_;
};

}  // namespace longhaul
