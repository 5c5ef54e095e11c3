// How likely a text's own continuation is to a model that has read what comes before it under a
// cache method: as a run has it, a document, a prompt, and an answer that grows token by token, but
// for that each token of the answer is given. So whatever a method decides when a document or a
// prompt is whole, or while an answer grows, is in the figure.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "tools/eval/step_runner.h"

namespace longhaul {

struct ContinuationArgs {
  std::span<const std::int32_t> tokens;  // of document, prompt and answer
  std::int64_t n_document = 0;           // tokens; at least 1
  std::int64_t n_prompt = 0;             // at least 1, and so of the answer
  std::int64_t vocab_size = 0;
  std::function<bool()> stop_requested;
};

struct ContinuationScore {
  std::int64_t n_tokens = 0;  // of the answer that were scored
  double mean_nll = 0;        // nats
  double seconds = 0;         // of the answer
};

// Leaves no sequence behind. Throws what StepRunner throws.
ContinuationScore score_continuation(StepRunner& steps, const ContinuationArgs& args);

}  // namespace longhaul
