#include "cluster/wire/logit_rules_codec.h"

#include <utility>

namespace longhaul {
namespace {

constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 24;

}  // namespace

void write(ByteWriter& out, const LogitRulesRef& rules) {
  out.number(static_cast<std::uint8_t>(rules != nullptr));
  if (rules == nullptr) return;
  out.number(static_cast<std::uint64_t>(rules->bias.size()));
  for (const auto& [token, bias] : rules->bias) {
    out.number(token);
    out.number(bias);
  }
  out.number(rules->repetition_penalty);
  out.number(rules->frequency_penalty);
  out.number(rules->presence_penalty);
  out.number(rules->prompt_tokens.size());
  out.list(std::span<const std::uint64_t>(rules->prompt_tokens.words()));
}

LogitRulesRef read_logit_rules(ByteReader& in) {
  const auto is_there = in.number<std::uint8_t>();
  if (is_there > 1) in.fail("unknown form of rules for logits");
  if (is_there == 0) return nullptr;
  LogitRules rules;
  rules.bias.resize(in.count(sizeof(std::int32_t) + sizeof(float)));
  for (auto& [token, bias] : rules.bias) {
    token = in.number<std::int32_t>();
    bias = in.number<float>();
  }
  rules.repetition_penalty = in.number<double>();
  rules.frequency_penalty = in.number<double>();
  rules.presence_penalty = in.number<double>();
  const auto size = in.number<std::int64_t>();
  if (size < 0 || size > kMaxVocabulary) in.fail("penalties over an absurd vocabulary");
  std::vector<std::uint64_t> words = in.list<std::uint64_t>();
  if (words.size() != IdSet(size).words().size()) in.fail("penalised tokens of another size");
  rules.prompt_tokens = IdSet(size, std::move(words));
  return std::make_shared<const LogitRules>(std::move(rules));
}

}  // namespace longhaul
