#include "coordinator/sampling.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/sha256.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMaxTokensOfNobody = 256;

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
  }
  params.temperature = flags.temperature.value_or(params.temperature);
  params.top_k = flags.top_k.value_or(params.top_k);
  params.top_p = flags.top_p.value_or(params.top_p);
  params.min_p = flags.min_p.value_or(params.min_p);
  params.seed = flags.seed.value_or(0);
  check_range("temperature", params.temperature, 0, 1000);
  check_range("top_p", params.top_p, 0, 1);
  check_range("min_p", params.min_p, 0, 1);
  if (params.top_k < 0) params.top_k = 0;
  defaults.max_tokens =
      flags.max_tokens.value_or(generation.max_new_tokens.value_or(kMaxTokensOfNobody));
  if (defaults.max_tokens < 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("the number of new tokens is {}; it must be 0 or more", defaults.max_tokens));
  }
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

std::int64_t max_tokens_of(const Request& request, const SamplingDefaults& defaults) {
  return request.max_tokens.value_or(defaults.max_tokens);
}

Json to_json(const SamplingParams& params) {
  return JsonObject{{"temperature", params.temperature},
                    {"top_k", params.top_k},
                    {"top_p", params.top_p},
                    {"min_p", params.min_p},
                    {"seed", static_cast<std::int64_t>(params.seed)}};
}

std::string describe(const SamplingParams& params) {
  if (params.temperature <= 0) return "greedy";
  return fmt::format("temperature {}, top_k {}, top_p {}, min_p {}, seed {}", params.temperature,
                     params.top_k, params.top_p, params.min_p, params.seed);
}

}  // namespace longhaul
