// How requests that leave sampling open are sampled, and what holds in the end for each of them.
// Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cluster/wire/step.h"
#include "coordinator/requests.h"
#include "model/hf_config.h"

namespace longhaul {

// What the command line says; what it leaves open comes from the model.
struct SamplingFlags {
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty = {};
  std::optional<double> frequency_penalty = {};
  std::optional<double> presence_penalty = {};
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> max_tokens;
  std::vector<std::string> stop = {};
  bool draws_seed = false;  // `seed` was drawn: a run that goes on keeps the one it had
};

struct SamplingDefaults {
  SamplingParams params;
  LogitRules rules = {};  // the penalties
  std::int64_t max_tokens = 256;
  std::vector<std::string> stop = {};
};

// Flags, else generation_config.json when it says do_sample, else greedy. max_tokens: the flag,
// else the model's max_new_tokens, else as it stands above. Throws kInvalidArgument for values
// outside their range, and for empty stop strings.
SamplingDefaults sampling_defaults(const SamplingFlags& flags, const GenerationConfig& generation);

// Defaults overridden by what the request says. A request without a seed gets one from the run's
// seed and its custom_id: requests draw differently, and the same again after a restart.
SamplingParams sampling_of(const Request& request, const SamplingDefaults& defaults);
// What the request's next tokens' logits undergo, without LogitRules::prompt_tokens.
LogitRules logit_rules_of(const Request& request, const SamplingDefaults& defaults);
std::int64_t max_tokens_of(const Request& request, const SamplingDefaults& defaults);
// The request's stop strings; those of the run where it has none.
std::vector<std::string> stop_of(const Request& request, const SamplingDefaults& defaults);

// Rules that change nothing are left out.
Json to_json(const SamplingParams& params, const LogitRules& rules);
// "greedy" or "temperature 0.7, top_k 40, top_p 0.9, min_p 0, seed 7"
std::string describe(const SamplingDefaults& defaults);

}  // namespace longhaul
