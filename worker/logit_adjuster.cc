#include "worker/logit_adjuster.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace longhaul {

std::span<const float> LogitAdjuster::apply(std::span<const float> logits,
                                            std::vector<float>& memory) const {
  memory.assign(logits.begin(), logits.end());
  const auto logit = [&](std::int64_t token) -> float& {
    return memory[static_cast<std::size_t>(token)];
  };
  for (const auto& [token, bias] : rules_->bias) logit(token) += bias;
  if (rules_->repetition_penalty != 1.0) {
    const auto penalty = static_cast<float>(rules_->repetition_penalty);
    const auto penalise = [&](std::int64_t token) {
      float& value = logit(token);
      value = value > 0 ? value / penalty : value * penalty;
    };
    rules_->prompt_tokens.for_each(penalise);
    for (const auto& [token, n] : n_in_answer_) {
      if (!rules_->prompt_tokens.contains(token)) penalise(token);
    }
  }
  const auto frequency = static_cast<float>(rules_->frequency_penalty);
  const auto presence = static_cast<float>(rules_->presence_penalty);
  if (frequency != 0 || presence != 0) {
    for (const auto& [token, n] : n_in_answer_) {
      logit(token) -= frequency * static_cast<float>(n);
      logit(token) -= presence;
    }
  }
  return memory;
}

void check_logit_rules(const LogitRulesRef& rules, std::int64_t vocab_size) {
  if (rules == nullptr) return;
  const auto require_finite = [](std::string_view field, double value) {
    require(std::isfinite(value), fmt::format("sampling: {} is {}", field, value));
  };
  for (const auto& [token, bias] : rules->bias) {
    require(
        0 <= token && token < vocab_size,
        fmt::format("logit_bias names token {}; the model's ids end at {}", token, vocab_size - 1));
    require_finite("logit_bias", bias);
  }
  require_finite("repetition_penalty", rules->repetition_penalty);
  require(rules->repetition_penalty > 0, "sampling: repetition_penalty must be above 0");
  require_finite("frequency_penalty", rules->frequency_penalty);
  require_finite("presence_penalty", rules->presence_penalty);
  require(rules->prompt_tokens.size() <= vocab_size,
          fmt::format("a repetition_penalty over {} tokens; the model's vocabulary has {}",
                      rules->prompt_tokens.size(), vocab_size));
}

}  // namespace longhaul
