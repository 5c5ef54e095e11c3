#include "model/hf_refusals.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/spelling.h"

namespace longhaul {
namespace {

struct Unsupported {
  std::string_view key;
  std::string_view what;  // and what to do, if anything helps
  // The value that changes nothing; without one, false, 0, null and empty lists and objects do.
  std::optional<double> neutral;
};

constexpr std::string_view kExperts = "mixture-of-experts models are not supported";
constexpr std::string_view kScaled =
    "scaled embeddings, residuals or logits are not supported for this architecture";
constexpr std::string_view kCapped = "soft-capped logits are not supported";

constexpr Unsupported kModelFields[] = {
    {"compression_config", "compressed weight files are not supported", {}},
    {"num_local_experts", kExperts, {}},
    {"num_experts", kExperts, {}},
    {"n_routed_experts", kExperts, {}},
    {"n_shared_experts", kExperts, {}},
    {"num_experts_per_tok", kExperts, {}},
    {"moe_intermediate_size", kExperts, {}},
    {"partial_rotary_factor", "RoPE over a part of the head is not supported", 1.0},
    {"rotary_pct", "RoPE over a part of the head is not supported", 1.0},
    {"no_rope_layers", "layers without RoPE are not supported", {}},
    {"alibi", "ALiBi positions are not supported", {}},
    {"dual_chunk_attention_config",
     "dual chunk attention is not supported; remove the field to run with plain attention, as "
     "transformers does",
     {}},
    {"attn_logit_softcapping", kCapped, {}},
    {"final_logit_softcapping", kCapped, {}},
    {"attention_multiplier", kScaled, {}},
    {"query_pre_attn_scalar", kScaled, {}},
    {"embedding_multiplier", kScaled, 1.0},
    {"residual_multiplier", kScaled, 1.0},
    {"logits_scaling", kScaled, 1.0},
    {"logit_scale", kScaled, 1.0},
    {"scale_emb", kScaled, 1.0},
    {"scale_depth", kScaled, {}},
    {"dim_model_base", kScaled, {}},
    {"use_qk_norm", "normalised queries and keys are not supported for this architecture", {}},
    {"qk_layernorm", "normalised queries and keys are not supported for this architecture", {}},
    {"attention_chunk_size", "chunked attention is not supported", {}},
    {"use_bidirectional_attention", "only causal attention is supported", {}},
    {"is_encoder_decoder", "only decoder-only models are supported", {}},
    {"add_cross_attention", "only decoder-only models are supported", {}},
    {"per_layer_config", "layers of different shapes are not supported", {}},
    {"block_configs", "layers of different shapes are not supported", {}},
    {"dms_window_size",
     "tokens dropped by Dynamic Memory Sparsification (DMS) are not supported",
     {}},
    {"cross_layer_sharing", "caches shared between layers are not supported", {}},
    {"num_kv_shared_layers", "caches shared between layers are not supported", {}},
};

// Of greedy answers too.
constexpr Unsupported kGenerationFields[] = {
    {"encoder_repetition_penalty", {}, 1.0},
    {"no_repeat_ngram_size", {}, {}},
    {"encoder_no_repeat_ngram_size", {}, {}},
    {"num_beams", {}, 1.0},
    {"num_beam_groups", {}, 1.0},
    {"penalty_alpha", {}, {}},
    {"dola_layers", {}, {}},
    {"diversity_penalty", {}, {}},
    {"min_length", {}, {}},
    {"min_new_tokens", {}, {}},
    {"bad_words_ids", {}, {}},
    {"force_words_ids", {}, {}},
    {"constraints", {}, {}},
    {"forced_bos_token_id", {}, {}},
    {"forced_eos_token_id", {}, {}},
    {"exponential_decay_length_penalty", {}, {}},
    {"suppress_tokens", {}, {}},
    {"begin_suppress_tokens", {}, {}},
    {"sequence_bias", {}, {}},
    {"guidance_scale", {}, 1.0},
    {"watermarking_config", {}, {}},
    {"stop_strings", {}, {}},
    {"num_return_sequences", {}, 1.0},
    {"forced_decoder_ids", {}, {}},
    {"token_healing", {}, {}},
    {"max_time", {}, {}},
};

// Of tokens that are drawn.
constexpr Unsupported kSamplingFields[] = {
    {"typical_p", {}, 1.0},
    {"top_h", {}, {}},
    {"epsilon_cutoff", {}, {}},
    {"eta_cutoff", {}, {}},
};

// Read, or known to leave the answers of one prompt as they are.
constexpr std::string_view kOtherGenerationFields[] = {"do_sample",
                                                       "temperature",
                                                       "top_k",
                                                       "top_p",
                                                       "min_p",
                                                       "repetition_penalty",
                                                       "max_new_tokens",
                                                       "eos_token_id",
                                                       "bos_token_id",
                                                       "pad_token_id",
                                                       "decoder_start_token_id",
                                                       "max_length",
                                                       "length_penalty",
                                                       "early_stopping",
                                                       "renormalize_logits",
                                                       "remove_invalid_values",
                                                       "use_cache",
                                                       "cache_config",
                                                       "cache_implementation",
                                                       "prefill_chunk_size",
                                                       "output_scores",
                                                       "output_logits",
                                                       "output_attentions",
                                                       "output_hidden_states",
                                                       "return_dict_in_generate",
                                                       "generation_kwargs",
                                                       "transformers_version"};

bool asks_for(const Unsupported& row, const std::optional<JsonField>& field) {
  if (!field) return false;
  if (!row.neutral) return is_set(field);
  if (const auto* integer = std::get_if<std::int64_t>(&field->json().value())) {
    return static_cast<double>(*integer) != *row.neutral;
  }
  const auto* number = std::get_if<double>(&field->json().value());
  return number == nullptr || *number != *row.neutral;
}

std::vector<std::string> fields_asked_for(const ConfigFields& config,
                                          std::span<const Unsupported> rows) {
  std::vector<std::string> found;
  for (const Unsupported& row : rows) {
    const auto field = config.find(row.key);
    if (asks_for(row, field)) found.push_back(fmt::format("{} {}", row.key, shown(field->json())));
  }
  return found;
}

}  // namespace

void refuse_unsupported_model_fields(const ConfigFields& config) {
  for (const Unsupported& row : kModelFields) {
    const auto field = config.find(row.key);
    if (asks_for(row, field)) {
      config.unsupported(row.key, fmt::format("is {}; {}", shown(field->json()), row.what));
    }
  }
  if (const auto causal = config.find("is_causal"); causal && !is_set(causal)) {
    config.unsupported("is_causal", "is false; only causal attention is supported");
  }
}

bool is_refused_model_field(std::string_view name) {
  return std::any_of(std::begin(kModelFields), std::end(kModelFields),
                     [&](const Unsupported& row) { return row.key == name; });
}

std::vector<std::string> unsupported_generation_fields(const ConfigFields& config) {
  return fields_asked_for(config, kGenerationFields);
}

std::vector<std::string> unsupported_sampling_fields(const ConfigFields& config) {
  return fields_asked_for(config, kSamplingFields);
}

std::vector<std::string> misspelt_generation_fields(const ConfigFields& config) {
  std::vector<std::string_view> known(std::begin(kOtherGenerationFields),
                                      std::end(kOtherGenerationFields));
  for (const Unsupported& row : kGenerationFields) known.push_back(row.key);
  for (const Unsupported& row : kSamplingFields) known.push_back(row.key);
  std::vector<std::string> found;
  for (const auto& [key, value] : std::get<JsonObject>(config.root().json().value())) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string meant = nearly(key, known);
    if (!meant.empty()) found.push_back(fmt::format("{} (did you mean {}?)", key, meant));
  }
  return found;
}

}  // namespace longhaul
