// What config.json may not say. What it means is in hf_reference_test.cc.
#include "model/hf_config.h"

#include <fmt/format.h>

#include "base/file.h"
#include "tests/support/paths.h"
#include "tests/unit/model/expect_error.h"

namespace longhaul {
namespace {

using test::message_of;
using testing::HasSubstr;

// A small Llama configuration with `fields` added (they come last, so they must be new ones).
std::string llama(std::string_view fields) {
  return fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
           "num_attention_heads": 4, "num_hidden_layers": 2{}{}}})",
      fields.empty() ? "" : ", ", fields);
}

std::string mistral(std::string_view fields) {
  return fmt::format(R"({{"model_type": "mistral", "num_hidden_layers": 2{}{}}})",
                     fields.empty() ? "" : ", ", fields);
}

std::string qwen(std::string_view type, std::string_view fields) {
  return fmt::format(R"({{"model_type": "{}", "num_hidden_layers": 2{}{}}})", type,
                     fields.empty() ? "" : ", ", fields);
}

std::string unsupported(const std::string& text) {
  return message_of(ErrorCode::kUnsupported, [&] { parse_hf_config(text, "here/config.json"); });
}
std::string corrupt(const std::string& text) {
  return message_of(ErrorCode::kCorruptData, [&] { parse_hf_config(text, "here/config.json"); });
}

TEST(HfConfig, ReadsTheRealModels) {
  LONGHAUL_SKIP_UNLESS_SHARED("models/needle/config.json");
  const auto path = test::shared_path("models/needle/config.json");
  const HfConfig needle = parse_hf_config(read_file(path, 1 << 20), path.string());
  EXPECT_EQ(needle.spec.n_layers, 4);
  EXPECT_EQ(needle.spec.n_kv_heads, 4);
  EXPECT_EQ(needle.spec.head_dim, 64);
  EXPECT_EQ(needle.spec.max_seq_len, 1048576);
  EXPECT_EQ(needle.spec.rope_theta, 1e12);
  EXPECT_TRUE(needle.spec.tied_embeddings);
  EXPECT_EQ(needle.bos_token_id, 0);
  EXPECT_THAT(needle.eos_token_ids, testing::ElementsAre(1));
}

TEST(HfConfig, ReadsTheDTypeUnderBothNames) {
  const auto dtype = [](std::string_view field) {
    return parse_hf_config(llama(field), "c").spec.weight_dtype;
  };
  EXPECT_EQ(dtype(""), DType::kF32);
  EXPECT_EQ(dtype(R"("torch_dtype": "bfloat16")"), DType::kBf16);
  EXPECT_EQ(dtype(R"("dtype": "float16")"), DType::kF16);
  EXPECT_EQ(dtype(R"("dtype": "float16", "torch_dtype": "float32")"), DType::kF16);
  EXPECT_THAT(unsupported(llama(R"("dtype": "float8_e4m3fn")")), HasSubstr("float8_e4m3fn"));
}

TEST(HfConfig, ReadsTheKindOfSoftmax) {
  const auto sinks = [](std::string_view field) {
    const HfConfig config = parse_hf_config(llama(field), "c");
    EXPECT_TRUE(config.unknown_keys.empty());
    return config.spec.sink_logits;
  };
  EXPECT_EQ(sinks(""), SinkLogits::kNone);
  EXPECT_EQ(sinks(R"("softmax_type": "vanilla")"), SinkLogits::kNone);
  EXPECT_EQ(sinks(R"("softmax_type": "off-by-one")"), SinkLogits::kZero);
  EXPECT_EQ(sinks(R"("softmax_type": "learnable")"), SinkLogits::kLearned);
  EXPECT_THAT(unsupported(llama(R"("softmax_type": "sparse")")), HasSubstr("off-by-one"));
}

TEST(HfConfig, RefusesOtherArchitecturesByName) {
  EXPECT_THAT(unsupported(R"({"architectures": ["GemmaForCausalLM"]})"),
              HasSubstr("here/config.json: architectures[0]: \"GemmaForCausalLM\""));
  EXPECT_THAT(unsupported(R"({"model_type": "mixtral"})"), HasSubstr("mixtral"));
  EXPECT_THAT(unsupported(R"({"architectures": ["LlamaForCausalLM", "X"]})"),
              HasSubstr("more than one"));
  EXPECT_THAT(corrupt("{}"), HasSubstr("architectures"));
  EXPECT_THAT(corrupt(R"({"architectures": ["LlamaForCausalLM"], "model_type": "qwen2"})"),
              HasSubstr("model_type"));
}

TEST(HfConfig, RefusesWhatChangesResultsByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("quantization_config": {"bits": 4})", "quantization_config"},
      {R"("num_local_experts": 8)", "num_local_experts"},
      {R"("partial_rotary_factor": 0.5)", "partial_rotary_factor"},
      {R"("rope_scaling": {"type": "linear", "factor": 2, "partial_rotary_factor": 0.5})",
       "rope_scaling.partial_rotary_factor"},
      {R"("rope_scaling": {"type": "dynamic", "factor": 2})",
       "rope_scaling.type: RoPE scaling "
       "\"dynamic\""},
      {R"("rope_parameters": {"rope_type": "longrope"})", "\"longrope\""},
      {R"("rope_parameters": {"full_attention": {"rope_theta": 1e6}})",
       "rope_parameters.full_attention"},
      {R"("rope_scaling": {"type": "default", "mrope_section": [1]})", "mrope_section"},
      {R"("hidden_act": "gelu")", "hidden_act: \"gelu\""},
      {R"("final_logit_softcapping": 30.0)", "final_logit_softcapping"},
      {R"("embedding_multiplier": 12.0)", "embedding_multiplier"},
      {R"("dual_chunk_attention_config": {"chunk_size": 262144})", "remove the field"},
      {R"("sliding_window": 4096)", "Llama models have no sliding window"},
      {R"("layer_types": ["full_attention", "linear_attention"])", "layer_types[1]"},
      {R"("is_causal": false)", "is_causal"},
      {R"("dms_window_size": 512)", "(DMS)"},
      {R"("dmc_window_size": 12, "dmc_is_stage_one": true)", "half way"},
  };
  for (const auto& [fields, named] : cases) {
    EXPECT_THAT(unsupported(llama(fields)), HasSubstr(named));
  }
  EXPECT_THAT(unsupported(mistral(R"("attention_bias": true)")), HasSubstr("attention_bias"));
  EXPECT_THAT(unsupported(mistral(R"("mlp_bias": true)")), HasSubstr("mlp_bias"));
  EXPECT_THAT(unsupported(mistral(R"("use_sliding_window": false)")),
              HasSubstr("set sliding_window to null"));
  EXPECT_THAT(unsupported(mistral(R"("layer_types": ["full_attention", "sliding_attention"])")),
              HasSubstr("layer_types[0]"));
  EXPECT_THAT(unsupported(qwen("qwen2", R"("attention_bias": false)")),
              HasSubstr("attention_bias"));
}

TEST(HfConfig, ReadsWhichModelsMergeTokens) {
  EXPECT_EQ(parse_hf_config(llama(""), "c").spec.token_merging, std::nullopt);
  EXPECT_EQ(parse_hf_config(llama(R"("dmc_window_size": 12)"), "c").spec.token_merging,
            (TokenMerging{.window = 12, .init_val = 5}));
  EXPECT_EQ(parse_hf_config(llama(R"("dmc_window_size": 8, "dmc_init_val": 2.5, "dmc_cr": 4)"), "c")
                .spec.token_merging,
            (TokenMerging{.window = 8, .init_val = 2.5}));
  EXPECT_THROW(parse_hf_config(llama(R"("dmc_window_size": 0)"), "c"), Error);
  EXPECT_THROW(parse_hf_config(llama(R"("dmc_init_val": 5)"), "c"), Error);
  EXPECT_THROW(parse_hf_config(mistral(R"("sliding_window": 64, "dmc_window_size": 12)"), "c"),
               Error);
}

TEST(HfConfig, TakesFieldsThatChangeNothing) {
  for (const char* fields :
       {R"("quantization_config": null)", R"("num_local_experts": 0)",
        R"("partial_rotary_factor": 1.0)", R"("embedding_multiplier": 1)",
        R"("sliding_window": null)", R"("use_sliding_window": false, "sliding_window": 4096)",
        R"("rope_scaling": null)", R"("rope_scaling": {"rope_type": "default", "factor": 1.0})",
        R"("rope_scaling": {})", R"("rope_parameters": {"rope_theta": 1e6, "factor": null})",
        R"("rope_scaling": {"type": "default", "original_max_position_embeddings": 2048})",
        R"("layer_types": ["full_attention", "full_attention"])", R"("hidden_act": "swish")",
        R"("initializer_range": 0.02, "use_cache": false, "pretraining_tp": 2)"}) {
    EXPECT_NO_THROW(parse_hf_config(llama(fields), "c")) << fields;
  }
}

// compressed-tensors' words for int8 weights with a scale for each output.
std::string int8_config(const std::string& weights, const std::string& activations,
                        const std::string& more = "") {
  return R"("quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized",
"config_groups": {"group_0": {"targets": ["Linear"], "weights": )" +
         weights + R"(, "input_activations": )" + activations + "}}" + more + "}";
}
constexpr const char* kChannel =
    R"({"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "dynamic": false})";
constexpr const char* kToken =
    R"({"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true})";

TEST(HfConfig, TakesInt8WeightsWithAScaleForEachOutput) {
  for (const std::string& fields :
       {int8_config(kChannel, kToken), int8_config(kChannel, "null"),
        int8_config(kChannel, kToken, R"(, "sparsity_config": {"format": "dense"})")}) {
    EXPECT_NO_THROW(parse_hf_config(llama(fields), "c")) << fields;
  }
}

TEST(HfConfig, RefusesOtherQuantisedWeights) {
  const std::string tensor =
      R"({"num_bits": 8, "type": "int", "symmetric": true, "strategy": "tensor", "dynamic": false})";
  const std::string bits4 =
      R"({"num_bits": 4, "type": "int", "symmetric": true, "strategy": "channel", "dynamic": false})";
  const std::string lopsided =
      R"({"num_bits": 8, "type": "int", "symmetric": false, "strategy": "token", "dynamic": true})";
  for (const std::string& fields :
       {int8_config(tensor, kToken), int8_config(bits4, kToken), int8_config(kChannel, lopsided),
        int8_config(kChannel, kChannel),
        int8_config(kChannel, kToken, R"(, "kv_cache_scheme": {"num_bits": 8})"),
        int8_config(kChannel, kToken, R"(, "sparsity_config": {"format": "sparse-24-bitmask"})"),
        std::string(R"("quantization_config": {"quant_method": "gptq", "bits": 8})"),
        std::string(R"("quantization_config": "compressed-tensors")")}) {
    EXPECT_THAT(unsupported(llama(fields)), HasSubstr("quantization_config")) << fields;
  }
}

// compressed-tensors' words for fp8 weights.
std::string float_config(const std::string& strategy, const std::string& more = "") {
  return R"("quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized",
"config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float",
"symmetric": true, "dynamic": false, "strategy": )" +
         strategy + "}}}" + more + "}";
}
std::string fp8_config(const std::string& more) {
  return R"("quantization_config": {"quant_method": "fp8")" + more + "}";
}

TEST(HfConfig, TakesFp8WeightsInTheirPublishedForms) {
  const std::pair<std::string, Fp8Files> cases[] = {
      {fp8_config(R"(, "fmt": "e4m3", "weight_block_size": [128, 128],
"activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head"])"),
       {128, 128}},
      {fp8_config(R"(, "weight_block_size": null, "activation_scheme": "static")"), {0, 0}},
      {fp8_config(""), {0, 0}},
      {float_config(R"("tensor")"), {0, 0}},
      {float_config(R"("channel")"), {1, 0}},
      {float_config(R"("block", "block_structure": [64, 192])"), {64, 192}}};
  for (const auto& [fields, want] : cases) {
    const HfConfig config = parse_hf_config(llama(fields), "c");
    EXPECT_EQ(config.fp8, want) << fields;
    EXPECT_EQ(config.spec.weight_dtype, DType::kF8E4m3) << fields;
  }
  EXPECT_EQ(parse_hf_config(llama(R"("quantization_config": null)"), "c").fp8, std::nullopt);
}

TEST(HfConfig, RefusesOtherFp8Weights) {
  for (const std::string& fields :
       {fp8_config(R"(, "fmt": "e5m2")"), fp8_config(R"(, "weight_block_size": [128, 100])"),
        fp8_config(R"(, "weight_block_size": [128])"),
        fp8_config(R"(, "weight_block_size": [0, 128])"),
        fp8_config(R"(, "weight_block_size": "128x128")"), float_config(R"("group")"),
        float_config(R"("block")"), float_config(R"("channel", "actorder": null, "num_bits": 4)"),
        float_config(R"("channel")", R"(, "kv_cache_scheme": {"num_bits": 8})"),
        std::string(R"("quantization_config": {"quant_method": "fbgemm_fp8"})")}) {
    EXPECT_ANY_THROW(parse_hf_config(llama(fields), "c")) << fields;
  }
  EXPECT_THAT(unsupported(llama(R"("quantization_config": {"quant_method": "quark"})")),
              HasSubstr("the weights are quark; of quantised weight files"));
  EXPECT_THAT(unsupported(llama(fp8_config(R"(, "weight_block_size": [128, 100])"))),
              HasSubstr("quantization_config.weight_block_size"));
}

TEST(HfConfig, SaysWhichFieldIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("vocab_size": 0)", "vocab_size: 0 is outside"},
      {R"("vocab_size": -5)", "vocab_size: -5"},
      {R"("vocab_size": 1e18)", "vocab_size"},
      {R"("vocab_size": "many")", "vocab_size: expected an integer, found a string"},
      {R"("intermediate_size": 2.5)", "intermediate_size: expected an integer"},
      {R"("num_key_value_heads": 3)",
       "num_attention_heads 4 is no multiple of "
       "num_key_value_heads 3"},
      {R"("head_dim": 7)", "head_dim 7 is odd"},
      {R"("rms_norm_eps": 0)", "rms_norm_eps"},
      {R"("rope_theta": 0)", "rope_theta"},
      {R"("rope_theta": "big")", "rope_theta: expected a number"},
      {R"("rope_scaling": 5)", "rope_scaling: expected an object"},
      {R"("rope_scaling": {"type": "linear"})", "rope_scaling.factor is missing"},
      {R"("rope_scaling": {"type": "linear", "factor": 0})", "rope_scaling.factor: 0 is outside"},
      {R"("rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1})",
       "rope_scaling.high_freq_factor is missing"},
      {R"("rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4,
           "high_freq_factor": 4})",
       "must be above low_freq_factor"},
      {R"("rope_scaling": {"factor": 8.0})",
       "rope_scaling.factor: is 8, and there is no rope_type, so that nothing would be scaled"},
      {R"("rope_scaling": {"rope_type": "default", "factor": 3})", "rope_type is \"default\""},
      {R"("rope_parameters": {"rope_theta": 5e5, "low_freq_factor": 1})",
       "rope_parameters.low_freq_factor: is 1"},
      {R"("rope_scaling": {"original_max_position_embeddings": 512})",
       "rope_scaling.original_max_position_embeddings: is 512"},
      {R"("rope_scaling": {"type": "default", "beta_fast": 32})", "rope_scaling.beta_fast"},
      {R"("bos_token_id": 32000)", "bos_token_id: 32000 is outside [0, 31999]"},
      {R"("eos_token_id": [2, -1])", "eos_token_id[1]: -1"},
      {R"("tie_word_embeddings": "yes")", "tie_word_embeddings: expected true or false"},
      {R"("layer_types": ["full_attention"])", "layer_types: has 1 entries for 2 layers"},
  };
  for (const auto& [fields, named] : cases) {
    EXPECT_THAT(corrupt(llama(fields)),
                testing::AllOf(HasSubstr("here/config.json"), HasSubstr(named)));
  }
  EXPECT_THAT(corrupt(R"({"model_type": "llama", "hidden_size": 62, "num_attention_heads": 4})"),
              HasSubstr("hidden_size 62 is no multiple of num_attention_heads 4"));
  EXPECT_THAT(corrupt(qwen("qwen3", R"("layer_types": ["sliding_attention", "full_attention"])")),
              HasSubstr("layer_types[0]: is sliding_attention"));
  EXPECT_THAT(corrupt(mistral(R"("sliding_window": 0)")), HasSubstr("sliding_window: 0"));
  EXPECT_THAT(corrupt("[]"), HasSubstr("expected an object, found a list"));
  EXPECT_THAT(corrupt("{"), HasSubstr("here/config.json: byte 2"));
}

TEST(HfConfig, UnusualVocabulariesDoNotGetDefaultTokensOutsideThem) {
  const HfConfig config = parse_hf_config(llama(R"("vocab_size": 2)"), "c");
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_TRUE(config.eos_token_ids.empty());
}

TEST(GenerationConfig, ReadsWhatIsThereAndKeepsDefaults) {
  const auto defaults = parse_generation_config("{}", "g");
  EXPECT_FALSE(defaults.do_sample);
  EXPECT_EQ(defaults.top_k, 50);
  EXPECT_FALSE(defaults.max_new_tokens);
  EXPECT_TRUE(defaults.unsupported.empty());
  const auto given = parse_generation_config(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1,
          "max_new_tokens": 12, "eos_token_id": [1, 2], "repetition_penalty": 1.05,
          "transformers_version": "5.0"})",
      "g");
  EXPECT_TRUE(given.do_sample);
  EXPECT_EQ(given.temperature, 0.6);
  EXPECT_EQ(given.top_k, 20);
  EXPECT_EQ(given.top_p, 0.95);
  EXPECT_EQ(given.min_p, 0.1);
  EXPECT_EQ(given.repetition_penalty, 1.05);
  EXPECT_EQ(given.max_new_tokens, 12);
  EXPECT_THAT(given.eos_token_ids, testing::ElementsAre(1, 2));
}

TEST(GenerationConfig, ListsSettingsThatLonghaulDoesNotHave) {
  const auto config = parse_generation_config(
      R"({"encoder_repetition_penalty": 1.05, "num_beams": 1, "no_repeat_ngram_size": 0,
          "typical_p": 1.0, "suppress_tokens": [3], "guidance_scale": null})",
      "g");
  EXPECT_THAT(config.unsupported,
              testing::ElementsAre("encoder_repetition_penalty 1.05", "suppress_tokens a list"));
}

// do_sample false once hid them, though they act on greedy answers as well.
TEST(GenerationConfig, GreedyAnswersLackWhatIsNotOfDrawingAlone) {
  const auto config = parse_generation_config(
      R"({"do_sample": false, "typical_p": 0.9, "begin_suppress_tokens": [3], "min_length": 5,
          "min_new_tokens": 4, "stop_strings": ["x"], "bad_words_ids": [[1]]})",
      "g");
  EXPECT_THAT(lacking_settings(config, Picking::kGreedy),
              testing::ElementsAre("min_length 5", "min_new_tokens 4", "bad_words_ids a list",
                                   "begin_suppress_tokens a list", "stop_strings a list"));
  EXPECT_THAT(lacking_settings(config, Picking::kDrawn), testing::Contains("typical_p 0.9"));
}

TEST(GenerationConfig, NamesThatAreNearlyOnesOfFieldsAreSaid) {
  const auto config = parse_generation_config(
      R"({"temprature": 0.2, "temperature": 0.7, "supress_tokens": [3], "chat_format": "chatml",
          "max_window_size": 6144, "_from_model_config": true})",
      "g");
  EXPECT_THAT(config.misspelt,
              testing::ElementsAre("temprature (did you mean temperature?)",
                                   "supress_tokens (did you mean suppress_tokens?)"));
}

TEST(GenerationConfig, SaysWhichFieldIsWrong) {
  for (const auto& [text, named] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"temperature": -1})", "temperature"},
           {R"({"do_sample": true, "temperature": 0})", "set do_sample to false"},
           {R"({"top_k": -1})", "top_k"},
           {R"({"top_p": 1.5})", "top_p"},
           {R"({"max_new_tokens": 0})", "max_new_tokens"},
           {R"({"eos_token_id": "</s>"})", "eos_token_id"},
           {R"({"do_sample": 1})", "do_sample"},
           {R"(3)", "expected an object"}}) {
    EXPECT_THAT(message_of(ErrorCode::kCorruptData,
                           [&] { parse_generation_config(text, "dir/generation_config.json"); }),
                testing::AllOf(HasSubstr("dir/generation_config.json"), HasSubstr(named)));
  }
}

}  // namespace
}  // namespace longhaul
