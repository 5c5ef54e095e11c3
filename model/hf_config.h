// Reads config.json and generation_config.json of a Hugging Face model folder. Supported:
// LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM. Anything that would
// change results and is not supported is refused by name, never ignored.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/hf_quantised.h"
#include "model/model_spec.h"

namespace longhaul {

struct HfConfig {
  ModelSpec spec;
  std::optional<Fp8Files> fp8;  // where the layers' matrices are fp8
  std::optional<std::int32_t> bos_token_id;
  std::vector<std::int32_t> eos_token_ids;  // config.json allows one or a list
  std::vector<std::string> unknown_keys;    // that nobody reads and that may mean something
};

// `source` names the text in errors. Throws kCorruptData (file, field, reason) or kUnsupported.
HfConfig parse_hf_config(std::string_view text, std::string_view source);

// Defaults of generation for requests that say nothing else. With do_sample false the numbers from
// temperature to repetition_penalty are not taken (transformers takes the last one there too).
struct GenerationConfig {
  bool do_sample = false;
  double temperature = 1.0;
  std::int64_t top_k = 50;
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  std::optional<std::int64_t> max_new_tokens;
  std::vector<std::int32_t> eos_token_ids;  // beside those of config.json
  // Settings of the file that change answers and that Longhaul does not have, such as
  // "no_repeat_ngram_size 3", and those that change only how tokens are drawn, such as "typical_p
  // 0.9". Not refused here, because many models carry them: whoever answers with this file's
  // settings must be warned.
  std::vector<std::string> unsupported;
  std::vector<std::string> unsupported_sampling;
  std::vector<std::string> misspelt;  // "temprature (did you mean temperature?)"
};

enum class Picking { kGreedy, kDrawn };
// What answers whose tokens are picked like this lack of what the file asks for. Pure.
std::vector<std::string> lacking_settings(const GenerationConfig& config, Picking picking);

// `max_length` (prompt included) is not taken: the context length is the limit anyway.
GenerationConfig parse_generation_config(std::string_view text, std::string_view source);

}  // namespace longhaul
