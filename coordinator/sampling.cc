#include "coordinator/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"

namespace longhaul {
namespace {

void check_range(std::string_view name, double value, double min, double max) {
  if (!(value >= min && value <= max)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is {}; it must lie in [{}, {}]", name, value, min, max));
  }
}

// 53 bits, so that the seed survives every JSON reader.
std::uint64_t seed_of(std::uint64_t run_seed, const std::string& custom_id) {
  const std::string digest = sha256_of(fmt::format("{}:{}", run_seed, custom_id));
  std::uint64_t seed = 0;
  std::from_chars(digest.data(), digest.data() + 16, seed, 16);
  return seed >> 11;
}

}  // namespace

SamplingDefaults sampling_defaults(const SamplingFlags& flags, const GenerationConfig& generation) {
  SamplingDefaults defaults;
  SamplingParams& params = defaults.params;
  if (generation.do_sample) {
    params.temperature = generation.temperature;
    params.top_k = generation.top_k;
    params.top_p = generation.top_p;
    params.min_p = generation.min_p;
    defaults.rules.repetition_penalty = generation.repetition_penalty;
  }
  params.temperature = flags.temperature.value_or(params.temperature);
  params.top_k = flags.top_k.value_or(params.top_k);
  params.top_p = flags.top_p.value_or(params.top_p);
  params.min_p = flags.min_p.value_or(params.min_p);
  params.seed = flags.seed.value_or(0);
  LogitRules& rules = defaults.rules;
  rules.repetition_penalty = flags.repetition_penalty.value_or(rules.repetition_penalty);
  rules.frequency_penalty = flags.frequency_penalty.value_or(0);
  rules.presence_penalty = flags.presence_penalty.value_or(0);
  check_range("repetition_penalty", rules.repetition_penalty, 1e-3, 1e3);
  check_range("frequency_penalty", rules.frequency_penalty, -2, 2);
  check_range("presence_penalty", rules.presence_penalty, -2, 2);
  check_range("temperature", params.temperature, 0, 1000);
  check_range("top_p", params.top_p, 0, 1);
  check_range("min_p", params.min_p, 0, 1);
  if (params.top_k < 0) params.top_k = 0;
  defaults.max_tokens =
      flags.max_tokens.value_or(generation.max_new_tokens.value_or(defaults.max_tokens));
  if (defaults.max_tokens < 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("the number of new tokens is {}; it must be 0 or more", defaults.max_tokens));
  }
  if (std::find(flags.stop.begin(), flags.stop.end(), "") != flags.stop.end())
    throw Error(ErrorCode::kInvalidArgument, "an empty stop string would end every answer at once");
  defaults.stop = flags.stop;
  return defaults;
}

SamplingParams sampling_of(const Request& request, const SamplingDefaults& defaults) {
  SamplingParams params = defaults.params;
  params.temperature = request.temperature.value_or(params.temperature);
  params.top_k = request.top_k.value_or(params.top_k);
  params.top_p = request.top_p.value_or(params.top_p);
  params.min_p = request.min_p.value_or(params.min_p);
  params.seed = request.seed.value_or(seed_of(params.seed, request.custom_id));
  params.n_logprobs = request.n_logprobs;
  return params;
}

LogitRules logit_rules_of(const Request& request, const SamplingDefaults& defaults) {
  const LogitRules& usual = defaults.rules;
  return {.bias = request.logit_bias,
          .repetition_penalty = request.repetition_penalty.value_or(usual.repetition_penalty),
          .frequency_penalty = request.frequency_penalty.value_or(usual.frequency_penalty),
          .presence_penalty = request.presence_penalty.value_or(usual.presence_penalty)};
}

std::int64_t max_tokens_of(const Request& request, const SamplingDefaults& defaults) {
  return request.max_tokens.value_or(defaults.max_tokens);
}

std::vector<std::string> stop_of(const Request& request, const SamplingDefaults& defaults) {
  return request.stop.value_or(defaults.stop);
}

namespace {

// With their names, those that do something.
std::vector<std::pair<std::string, double>> penalties_in(const LogitRules& rules) {
  std::vector<std::pair<std::string, double>> found;
  if (rules.repetition_penalty != 1)
    found.emplace_back("repetition_penalty", rules.repetition_penalty);
  if (rules.frequency_penalty != 0)
    found.emplace_back("frequency_penalty", rules.frequency_penalty);
  if (rules.presence_penalty != 0) found.emplace_back("presence_penalty", rules.presence_penalty);
  return found;
}

}  // namespace

Json to_json(const SamplingParams& params, const LogitRules& rules) {
  JsonObject json{{"temperature", params.temperature},
                  {"top_k", params.top_k},
                  {"top_p", params.top_p},
                  {"min_p", params.min_p},
                  {"seed", static_cast<std::int64_t>(params.seed)}};
  for (const auto& [name, value] : penalties_in(rules)) json.emplace_back(name, value);
  if (!rules.bias.empty()) {
    JsonObject biases;
    for (const auto& [token, bias] : rules.bias)
      biases.emplace_back(fmt::format("{}", token), bias);
    json.emplace_back("logit_bias", std::move(biases));
  }
  return json;
}

std::string describe(const SamplingDefaults& defaults) {
  const SamplingParams& params = defaults.params;
  std::string text =
      params.temperature <= 0
          ? std::string("greedy")
          : fmt::format("temperature {}, top_k {}, top_p {}, min_p {}, seed {}", params.temperature,
                        params.top_k, params.top_p, params.min_p, params.seed);
  for (const auto& [name, value] : penalties_in(defaults.rules))
    text += fmt::format(", {} {}", name, value);
  return text;
}

}  // namespace longhaul
