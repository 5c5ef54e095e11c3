#include "model/hf_config.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/config_keys.h"
#include "model/hf_refusals.h"
#include "model/hf_rope.h"

namespace longhaul {
namespace {

// Bounds far above any model; ModelSpec::validate bounds what they make together.
constexpr std::int64_t kMaxDimension = std::int64_t{1} << 24;
constexpr std::int64_t kMaxHeadDim = 1 << 16;
constexpr std::int64_t kMaxLayers = 1 << 14;

// What differs between the supported architectures: the defaults of their configuration classes in
// transformers, and what is fixed in their code.
struct Family {
  std::string_view architecture;
  std::string_view model_type;
  std::int64_t vocab_size;
  std::int64_t d_ff;
  std::int64_t n_kv_heads;  // 0: as many as heads
  std::int64_t head_dim;    // 0: d_model / n_heads
  std::int64_t max_seq_len;
  std::int32_t bos, eos;  // -1: none
};
constexpr std::array<Family, 4> kFamilies = {{
    {"LlamaForCausalLM", "llama", 32000, 11008, 0, 0, 2048, 1, 2},
    {"MistralForCausalLM", "mistral", 32000, 14336, 8, 0, 131072, 1, 2},
    {"Qwen2ForCausalLM", "qwen2", 151936, 22016, 32, 0, 32768, -1, -1},
    {"Qwen3ForCausalLM", "qwen3", 151936, 22016, 32, 128, 32768, -1, -1},
}};
constexpr std::string_view kSupported =
    "supported are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM";

const Family& find_family(const ConfigFields& config) {
  const auto architectures = config.find("architectures");
  const std::string model_type = config.text("model_type", "");
  std::string architecture;
  if (is_set(architectures)) {
    if (architectures->size() != 1) {
      config.unsupported("architectures", "more than one is named; " + std::string(kSupported));
    }
    architecture = architectures->at(0).as_string();
  }
  if (architecture.empty() && model_type.empty()) {
    config.root().fail("neither architectures nor model_type says what this model is");
  }
  for (const Family& family : kFamilies) {
    if (!architecture.empty() ? architecture != family.architecture
                              : model_type != family.model_type) {
      continue;
    }
    if (!model_type.empty() && model_type != family.model_type) {
      config.find("model_type")
          ->fail(fmt::format("{} does not belong to {}; expected \"{}\"", shown(Json(model_type)),
                             architecture, family.model_type));
    }
    return family;
  }
  if (architecture.empty()) {
    config.unsupported("model_type",
                       fmt::format("{} is not supported; {}", shown(Json(model_type)), kSupported));
  }
  config.unsupported("architectures[0]",
                     fmt::format("{} is not supported; {}", shown(Json(architecture)), kSupported));
}

void read_dimensions(const ConfigFields& config, const Family& family, ModelSpec& spec) {
  spec.vocab_size = config.integer("vocab_size", family.vocab_size, 1, kMaxDimension);
  spec.d_model = config.integer("hidden_size", 4096, 1, kMaxDimension);
  spec.d_ff = config.integer("intermediate_size", family.d_ff, 1, kMaxDimension);
  spec.n_layers = config.integer("num_hidden_layers", 32, 1, kMaxLayers);
  spec.n_heads = config.integer("num_attention_heads", 32, 1, kMaxDimension);
  const bool kv_given = config.has("num_key_value_heads");
  const std::int64_t kv_default =
      kv_given || family.n_kv_heads == 0 ? spec.n_heads : family.n_kv_heads;
  spec.n_kv_heads = config.integer("num_key_value_heads", kv_default, 1, kMaxDimension);
  if (spec.n_heads % spec.n_kv_heads != 0) {
    config.root().fail(fmt::format(
        "num_attention_heads {} is no multiple of num_key_value_heads {}{}", spec.n_heads,
        spec.n_kv_heads, kv_given ? "" : " (the default; set num_key_value_heads)"));
  }
  if (config.find("head_dim")) {
    spec.head_dim = config.root().at("head_dim").as_integer(1, kMaxHeadDim);
  } else if (family.head_dim != 0) {
    spec.head_dim = family.head_dim;
  } else {
    if (spec.d_model % spec.n_heads != 0) {
      config.root().fail(fmt::format(
          "hidden_size {} is no multiple of num_attention_heads {}, and head_dim is not given",
          spec.d_model, spec.n_heads));
    }
    spec.head_dim = spec.d_model / spec.n_heads;
  }
  if (spec.head_dim > kMaxHeadDim) {
    config.root().fail(fmt::format("head_dim {} is above {}", spec.head_dim, kMaxHeadDim));
  }
  if (spec.head_dim % 2 != 0) {
    config.root().fail(fmt::format("head_dim {} is odd; RoPE rotates pairs", spec.head_dim));
  }
  spec.max_seq_len =
      config.integer("max_position_embeddings", family.max_seq_len, 1, kMaxPositions);
  spec.norm_eps = config.number("rms_norm_eps", 1e-6, 1e-30, 1.0);
}

// Which projections have biases is partly a field, partly fixed in the architecture's code. A field
// that contradicts the code is refused: transformers would ignore it.
void read_biases(const ConfigFields& config, const Family& family, ModelSpec& spec) {
  const bool is_qwen2 = family.model_type == "qwen2";
  const bool is_llama = family.model_type == "llama";
  const bool attention_bias = config.boolean("attention_bias", is_qwen2);
  spec.mlp_bias = config.boolean("mlp_bias", false);
  spec.qkv_bias = attention_bias;
  spec.attention_output_bias = attention_bias && !is_qwen2;
  if (is_qwen2 && !attention_bias) {
    config.unsupported("attention_bias", "is false, but Qwen2 always has biases on q, k and v");
  }
  if (family.model_type == "mistral" && attention_bias) {
    config.unsupported("attention_bias", "is true, but Mistral has no biases");
  }
  if (spec.mlp_bias && !is_llama) {
    config.unsupported("mlp_bias", fmt::format("is true, but {} has no biases in its feed-forward "
                                               "layers",
                                               family.architecture));
  }
}

// The window of sliding layers, or kNoWindow. Mistral has one unless sliding_window is null (a
// missing field is its default, 4096); Qwen only with use_sliding_window; Llama never.
std::int64_t sliding_window(const ConfigFields& config, const Family& family) {
  const bool use = config.boolean("use_sliding_window", family.model_type == "mistral");
  const auto field = config.find("sliding_window");
  if (field) field->as_integer(0, kMaxPositions);
  if (family.model_type == "llama") {
    if (field && (use || !config.has("use_sliding_window"))) {
      config.unsupported("sliding_window",
                         "Llama models have no sliding window; remove the field or set it to null");
    }
    return ModelSpec::kNoWindow;
  }
  if (family.model_type == "mistral" && !use) {
    config.unsupported("use_sliding_window",
                       "Mistral models do not know this field; set sliding_window to null instead");
  }
  if (!use || (config.has("sliding_window") && !field)) return ModelSpec::kNoWindow;
  return field ? field->as_integer(1, kMaxPositions) : 4096;
}

void read_windows(const ConfigFields& config, const Family& family, ModelSpec& spec) {
  const std::int64_t window = sliding_window(config, family);
  const bool is_qwen = family.model_type == "qwen2" || family.model_type == "qwen3";
  const std::int64_t first_sliding = config.integer("max_window_layers", 28, 0, kMaxDimension);
  for (std::int64_t layer = 0; layer < spec.n_layers; ++layer) {
    const bool slides = !is_qwen || layer >= first_sliding;
    spec.attention_window.push_back(slides ? window : ModelSpec::kNoWindow);
  }
  const auto types = config.find("layer_types");
  if (!types) return;
  if (static_cast<std::int64_t>(types->size()) != spec.n_layers) {
    types->fail(fmt::format("has {} entries for {} layers", types->size(), spec.n_layers));
  }
  for (std::size_t layer = 0; layer < types->size(); ++layer) {
    const JsonField type = types->at(layer);
    const std::string& name = type.as_string();
    const bool slides = name == "sliding_attention";
    if (!slides && name != "full_attention" && name != "attention") {
      config.unsupported(type.path(),
                         fmt::format("layers of type {} are not supported", shown(type.json())));
    }
    if (slides && window == ModelSpec::kNoWindow) {
      type.fail("is sliding_attention, but sliding_window (or use_sliding_window) is off");
    }
    if (!is_qwen && slides != (window != ModelSpec::kNoWindow)) {
      config.unsupported(type.path(), fmt::format("{} models have one kind of attention in all "
                                                  "layers",
                                                  family.model_type));
    }
    if (is_qwen) spec.attention_window[layer] = slides ? window : ModelSpec::kNoWindow;
  }
}

// In the words of Megatron-Core and Transformer Engine. Hugging Face's configurations have none: of
// gpt-oss the architecture's code alone says that there are sinks.
SinkLogits read_softmax_type(const ConfigFields& config) {
  const std::string type = config.text("softmax_type", "vanilla");
  if (type == "vanilla") return SinkLogits::kNone;
  if (type == "off-by-one") return SinkLogits::kZero;
  if (type == "learnable") return SinkLogits::kLearned;
  config.unsupported("softmax_type", fmt::format("{} is not supported; supported are vanilla, "
                                                 "off-by-one and learnable",
                                                 shown(Json(type))));
}

// Models that merge tokens (DMC). None is published in this form, so the fields are named as the
// arguments of the code that trains them (Megatron-LM, branch dmc).
void read_merging(const ConfigFields& config, ModelSpec& spec) {
  if (!config.find("dmc_window_size")) {
    if (config.find("dmc_init_val"))
      config.root().fail(
          "dmc_init_val is given, but not dmc_window_size, which says that the model "
          "merges tokens (DMC)");
    return;
  }
  if (config.boolean("dmc_is_stage_one", false))
    config.unsupported("dmc_is_stage_one", "this model is trained half way to DMC only");
  TokenMerging merging;
  merging.window = config.integer("dmc_window_size", merging.window, 1, 4096);
  merging.init_val = config.number("dmc_init_val", merging.init_val, -1e3, 1e3);
  spec.token_merging = merging;
}

DType read_dtype(const ConfigFields& config) {
  const std::string_view key = config.find("dtype") ? "dtype" : "torch_dtype";
  const std::string name = config.text(key, "float32");
  if (name == "float32") return DType::kF32;
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBf16;
  if (name == "float64") return DType::kF64;
  config.unsupported(key, fmt::format("{} is not supported; supported are float32, float16, "
                                      "bfloat16 and float64",
                                      shown(Json(name))));
}

void read_token_ids(const ConfigFields& config, const Family& family, HfConfig& result) {
  const std::int64_t n_ids = result.spec.vocab_size;
  if (const auto bos = config.find("bos_token_id")) {
    result.bos_token_id = static_cast<std::int32_t>(bos->as_integer(0, n_ids - 1));
  } else if (!config.has("bos_token_id") && family.bos >= 0 && family.bos < n_ids) {
    result.bos_token_id = family.bos;
  }
  result.eos_token_ids = config.token_ids("eos_token_id", n_ids);
  if (!config.has("eos_token_id") && family.eos >= 0 && family.eos < n_ids) {
    result.eos_token_ids = {family.eos};
  }
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, std::string_view source) {
  const Json json = parse_json(text, source);
  const ConfigFields config(json, source);
  const Family& family = find_family(config);
  const std::optional<Fp8Files> fp8 = read_quantised_form(config);
  refuse_unsupported_model_fields(config);
  if (const std::string act = config.text("hidden_act", "silu"); act != "silu" && act != "swish") {
    config.unsupported("hidden_act",
                       fmt::format("{} is not supported; only silu is", shown(Json(act))));
  }
  HfConfig result;
  result.fp8 = fp8;
  result.unknown_keys = unknown_config_keys(config);
  ModelSpec& spec = result.spec;
  spec.model_type = family.model_type;
  read_dimensions(config, family, spec);
  read_biases(config, family, spec);
  read_rope(config, spec);
  read_windows(config, family, spec);
  read_merging(config, spec);
  spec.qk_norm = family.model_type == "qwen3";
  spec.tied_embeddings = config.boolean("tie_word_embeddings", false);
  spec.sink_logits = read_softmax_type(config);
  spec.weight_dtype = read_dtype(config);
  if (fp8) spec.weight_dtype = DType::kF8E4m3;
  read_token_ids(config, family, result);
  try {
    spec.validate();
  } catch (const Error& error) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: {}", source, error.what()));
  }
  return result;
}

}  // namespace longhaul
