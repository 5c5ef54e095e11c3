// generation_config.json: what requests inherit that say nothing themselves.
#include <fmt/format.h>

#include <limits>

#include "model/config_fields.h"
#include "model/hf_config.h"
#include "model/hf_refusals.h"

namespace longhaul {

GenerationConfig parse_generation_config(std::string_view text, std::string_view source) {
  constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;
  constexpr std::int64_t kMaxIds = std::numeric_limits<std::int32_t>::max();
  const Json json = parse_json(text, source);
  const ConfigFields config(json, source);
  GenerationConfig result;
  result.do_sample = config.boolean("do_sample", result.do_sample);
  result.temperature = config.number("temperature", result.temperature, 0, 1e6);
  if (result.do_sample && result.temperature == 0) {
    config.find("temperature")
        ->fail("is 0 while do_sample is true; set do_sample to false for greedy decoding");
  }
  result.top_k = config.integer("top_k", result.top_k, 0, kMaxIds);
  result.top_p = config.number("top_p", result.top_p, 0, 1);
  result.min_p = config.number("min_p", result.min_p, 0, 1);
  result.repetition_penalty =
      config.number("repetition_penalty", result.repetition_penalty, 1e-3, 1e3);
  if (const auto tokens = config.find("max_new_tokens")) {
    result.max_new_tokens = tokens->as_integer(1, kMaxTokens);
  }
  result.eos_token_ids = config.token_ids("eos_token_id", kMaxIds);
  result.unsupported = unsupported_generation_fields(config);
  result.unsupported_sampling = unsupported_sampling_fields(config);
  result.misspelt = misspelt_generation_fields(config);
  return result;
}

std::vector<std::string> lacking_settings(const GenerationConfig& config, Picking picking) {
  std::vector<std::string> lacking = config.unsupported;
  if (picking == Picking::kDrawn) {
    lacking.insert(lacking.end(), config.unsupported_sampling.begin(),
                   config.unsupported_sampling.end());
  }
  return lacking;
}

}  // namespace longhaul
