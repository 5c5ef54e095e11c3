#include "model/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/json.h"
#include "base/spelling.h"
#include "model/hf_refusals.h"

namespace longhaul {
namespace {

// Read by hf_config.cc, hf_rope.cc and hf_refusals.cc.
const std::vector<std::string_view> kRead = {"architectures",
                                             "model_type",
                                             "vocab_size",
                                             "hidden_size",
                                             "intermediate_size",
                                             "num_hidden_layers",
                                             "num_attention_heads",
                                             "num_key_value_heads",
                                             "head_dim",
                                             "max_position_embeddings",
                                             "rms_norm_eps",
                                             "attention_bias",
                                             "mlp_bias",
                                             "use_sliding_window",
                                             "sliding_window",
                                             "max_window_layers",
                                             "layer_types",
                                             "hidden_act",
                                             "rope_theta",
                                             "rope_scaling",
                                             "rope_parameters",
                                             "original_max_position_embeddings",
                                             "tie_word_embeddings",
                                             "dtype",
                                             "torch_dtype",
                                             "bos_token_id",
                                             "eos_token_id",
                                             "quantization_config",
                                             "softmax_type",
                                             "is_causal",
                                             "dmc_window_size",
                                             "dmc_init_val",
                                             "dmc_is_stage_one"};

const std::vector<std::string_view> kReadOfRope = {"rope_type",
                                                   "type",
                                                   "factor",
                                                   "low_freq_factor",
                                                   "high_freq_factor",
                                                   "rope_theta",
                                                   "original_max_position_embeddings",
                                                   "beta_fast",
                                                   "beta_slow",
                                                   "attention_factor",
                                                   "mscale",
                                                   "mscale_all_dim",
                                                   "truncate",
                                                   "partial_rotary_factor",
                                                   "mrope_section",
                                                   "mrope_interleaved"};

// Of training, of generation, of other libraries, of where the file came from: transformers'
// PretrainedConfig and the configurations of the families that are read.
const std::vector<std::string_view> kHarmless = {"_attn_implementation",
                                                 "_attn_implementation_autoset",
                                                 "_attn_implementation_internal",
                                                 "_commit_hash",
                                                 "_flash_attn_2_enabled",
                                                 "_name_or_path",
                                                 "add_bos_token",
                                                 "add_eos_token",
                                                 "attention_dropout",
                                                 "attention_probs_dropout_prob",
                                                 "attn_implementation",
                                                 "attn_pdrop",
                                                 "auto_map",
                                                 "bad_words_ids",
                                                 "begin_suppress_tokens",
                                                 "bos_token",
                                                 "chunk_size_feed_forward",
                                                 "classifier_dropout",
                                                 "cls_token_id",
                                                 "cross_attention_hidden_size",
                                                 "custom_pipelines",
                                                 "decoder_start_token_id",
                                                 "diversity_penalty",
                                                 "dmc_cr",
                                                 "dmc_finetune",
                                                 "dmc_temp",
                                                 "do_sample",
                                                 "early_stopping",
                                                 "embd_pdrop",
                                                 "encoder_no_repeat_ngram_size",
                                                 "eos_token",
                                                 "exponential_decay_length_penalty",
                                                 "finetuning_task",
                                                 "flash_attention",
                                                 "forced_bos_token_id",
                                                 "forced_eos_token_id",
                                                 "gradient_checkpointing",
                                                 "hidden_dropout",
                                                 "hidden_dropout_prob",
                                                 "id2label",
                                                 "initializer_factor",
                                                 "initializer_range",
                                                 "is_decoder",
                                                 "keys_to_ignore_at_inference",
                                                 "label2id",
                                                 "length_penalty",
                                                 "license",
                                                 "max_length",
                                                 "max_new_tokens",
                                                 "min_length",
                                                 "model_max_length",
                                                 "model_parallel",
                                                 "name_or_path",
                                                 "no_repeat_ngram_size",
                                                 "num_beam_groups",
                                                 "num_beams",
                                                 "num_labels",
                                                 "num_return_sequences",
                                                 "output_attentions",
                                                 "output_hidden_states",
                                                 "output_router_logits",
                                                 "output_scores",
                                                 "pad_token",
                                                 "pad_token_id",
                                                 "prefix",
                                                 "pretraining_tp",
                                                 "problem_type",
                                                 "pruned_heads",
                                                 "remove_invalid_values",
                                                 "repetition_penalty",
                                                 "resid_pdrop",
                                                 "return_dict",
                                                 "return_dict_in_generate",
                                                 "router_aux_loss_coef",
                                                 "sep_token_id",
                                                 "summary_type",
                                                 "suppress_tokens",
                                                 "task_specific_params",
                                                 "temperature",
                                                 "tf_legacy_loss",
                                                 "tie_encoder_decoder",
                                                 "tokenizer_class",
                                                 "tokenizer_model_max_length",
                                                 "tokenizer_padding_side",
                                                 "top_k",
                                                 "top_p",
                                                 "torchscript",
                                                 "transformers.js_config",
                                                 "transformers_version",
                                                 "typical_p",
                                                 "unk_token_id",
                                                 "unsloth_fixed",
                                                 "unsloth_version",
                                                 "use_bfloat16",
                                                 "use_cache",
                                                 "use_flash_attention_2"};

bool is_in(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Those of an object's fields that nobody knows.
void look_at(const JsonField& object, const std::vector<std::string_view>& read,
             const std::vector<std::string_view>& harmless, std::vector<std::string>& unknown) {
  const Json& json = object.json();
  std::vector<std::string_view> missing;
  for (const std::string_view name : read) {
    if (json.find(name) == nullptr) missing.push_back(name);
  }
  const std::string prefix = object.path().empty() ? "" : object.path() + ".";
  for (const auto& [key, value] : std::get<JsonObject>(json.value())) {
    if (is_in(read, key) || is_in(harmless, key) || is_refused_model_field(key)) continue;
    const std::string meant = nearly(key, missing);
    if (!meant.empty()) {
      object.fail(
          fmt::format("{}: there is no such field; did you mean {}? Correct its name, or "
                      "remove it",
                      key, meant));
    }
    unknown.push_back(prefix + key);
  }
}

}  // namespace

std::vector<std::string> unknown_config_keys(const ConfigFields& config) {
  std::vector<std::string> unknown;
  look_at(config.root(), kRead, kHarmless, unknown);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = config.find(key);
    if (rope && rope->json().is_object()) look_at(*rope, kReadOfRope, {"finetuned"}, unknown);
  }
  return unknown;
}

}  // namespace longhaul
