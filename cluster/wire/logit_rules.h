// What a request does to the logits before its next token is picked: biases of single tokens, and
// penalties on tokens that stand in the text already. Plain values; worker/logit_adjuster.h does
// it.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/id_set.h"

namespace longhaul {

struct TokenBias {
  std::int32_t token = -1;
  float bias = 0.0F;  // added to its logit
  bool operator==(const TokenBias&) const = default;
};

// In the order in which they are applied, which is vLLM's (vllm/v1/sample/sampler.py): what is not
// allowed is away already, temperature and filters come after.
struct LogitRules {
  std::vector<TokenBias> bias = {};  // of different tokens
  // Of every token of the prompt, its documents included, or of the answer so far, once, however
  // often it stands there: a positive logit is divided by it, another one multiplied (CTRL, arXiv
  // 1909.05858, section 4.1; the prompt as in Hugging Face and vLLM).
  double repetition_penalty = 1.0;
  // OpenAI's: of the answer alone. Taken off a logit for each time that the token stands in it ...
  double frequency_penalty = 0.0;
  // ... and once, if it stands in it at all.
  double presence_penalty = 0.0;
  IdSet prompt_tokens{};  // for repetition_penalty; may be empty where that is 1
  bool operator==(const LogitRules&) const = default;
};

// Null: the logits stay as they are. A sequence has them from when it is made.
using LogitRulesRef = std::shared_ptr<const LogitRules>;

}  // namespace longhaul
