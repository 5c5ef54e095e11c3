// Applies a request's LogitRules (cluster/wire/logit_rules.h) to the logits that its next token is
// picked from. Every rank keeps one for each sequence that has rules, so that whichever rank picks
// knows the answer so far: the result does not depend on the ranks. Log-probabilities are not
// touched: they are those of the unmodified distribution, as vLLM reports them.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "cluster/wire/logit_rules.h"

namespace longhaul {

// Used by one thread.
class LogitAdjuster {
 public:
  LogitAdjuster() = default;
  explicit LogitAdjuster(LogitRulesRef rules) : rules_(std::move(rules)) {}

  // False: nothing to do.
  bool is_active() const { return rules_ != nullptr; }
  // The answer grows by this token.
  void add(std::int32_t token) {
    if (is_active()) ++n_in_answer_[token];
  }
  // `logits` [vocab_size] with the rules applied, in `memory`, whose old content is lost.
  std::span<const float> apply(std::span<const float> logits, std::vector<float>& memory) const;

 private:
  LogitRulesRef rules_;
  std::unordered_map<std::int32_t, std::int64_t> n_in_answer_;  // how often each token stands there
};

// Throws kInvalidArgument naming the field: not finite, a repetition_penalty that is not above 0,
// tokens outside the vocabulary.
void check_logit_rules(const LogitRulesRef& rules, std::int64_t vocab_size);

}  // namespace longhaul
