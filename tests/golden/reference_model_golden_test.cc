// The double-precision reference model against Hugging Face's logits, for every stored model: what
// the engine is compared with elsewhere is itself right. Also checks, along the way, that
// config.json, RoPE scalings and safetensors are read as transformers reads them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/golden/golden_models.h"
#include "tests/support/reference_model.h"

namespace longhaul::test {
namespace {

// Hugging Face computes in float32, with RoPE angles in float32: its own rounding is what this
// allows for. README.md has the measured figures.
constexpr double kFloat32Nmse = 1e-11;

// A wrong setting moves them at least so far.
constexpr double kWrongNmse = 1e-3;

double nmse(const std::vector<double>& got, const std::vector<double>& want) {
  double error = 0;
  double square = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    square += want[i] * want[i];
  }
  return got.size() == want.size() ? error / square : std::nan("");
}

class ReferenceModelGolden : public testing::TestWithParam<std::string> {};

TEST_P(ReferenceModelGolden, LogitsEqualThoseOfHuggingFace) {
  const GoldenModel golden = read_golden_model(GetParam());
  const ReferenceModel model{ModelFolder(golden.folder)};
  const std::vector<double> logits = model.logits(golden.tokens);
  const double error = nmse(logits, golden.logits.values);
  RecordProperty("nmse", fmt::format("{:.2e}", error));
  fmt::print("{}: NMSE {:.2e}\n", golden.name, error);
  EXPECT_LE(error, kFloat32Nmse);
}

INSTANTIATE_TEST_SUITE_P(AllModels, ReferenceModelGolden, testing::ValuesIn(golden_model_names()),
                         [](const auto& test) { return test.param; });

// That the stored logits can tell: each of these settings, read wrongly, moves them by far more
// than rounding does.
struct WrongSetting {
  const char* what;
  const char* model;
  std::function<void(ModelSpec&)> spoil;
};

void PrintTo(const WrongSetting& wrong, std::ostream* out) { *out << wrong.what; }

const WrongSetting kWrongSettings[] = {
    {"Theta", "llama3_gqa", [](ModelSpec& s) { s.rope_theta = 10000; }},
    {"Epsilon", "llama_mqa_large_eps", [](ModelSpec& s) { s.norm_eps = 1e-5; }},
    {"LinearFactor", "llama_rope_linear", [](ModelSpec& s) { s.rope_scaling.factor = 2; }},
    {"Llama3Factor", "llama_rope_llama3", [](ModelSpec& s) { s.rope_scaling.factor = 4; }},
    {"Llama3LowFrequency", "llama_rope_llama3_new_form",
     [](ModelSpec& s) { s.rope_scaling.low_freq_factor = 1; }},
    {"Llama3HighFrequency", "llama_rope_llama3_new_form",
     [](ModelSpec& s) { s.rope_scaling.high_freq_factor = 4; }},
    {"Llama3TrainedLength", "llama_rope_llama3",
     [](ModelSpec& s) { s.rope_scaling.original_max_position = 128; }},
    {"YarnFactor", "qwen2_rope_yarn", [](ModelSpec& s) { s.rope_scaling.factor = 8; }},
    {"YarnTrainedLength", "qwen2_rope_yarn",
     [](ModelSpec& s) { s.rope_scaling.original_max_position = 512; }},
    {"YarnMscale", "llama_rope_yarn_mscale", [](ModelSpec& s) { s.rope_scaling.mscale.reset(); }},
    {"YarnMscaleAllDim", "llama_rope_yarn_mscale",
     [](ModelSpec& s) { s.rope_scaling.mscale_all_dim = 1.0; }},
    {"YarnAttentionFactor", "llama_rope_yarn_attention_factor",
     [](ModelSpec& s) { s.rope_scaling.attention_factor.reset(); }},
    {"YarnBetaFast", "llama_rope_yarn_attention_factor",
     [](ModelSpec& s) { s.rope_scaling.beta_fast = 32; }},
    {"YarnBetaSlow", "llama_rope_yarn_attention_factor",
     [](ModelSpec& s) { s.rope_scaling.beta_slow = 1; }},
    {"YarnTruncate", "llama_rope_yarn_attention_factor",
     [](ModelSpec& s) { s.rope_scaling.truncate = true; }},
    {"MistralWindow", "mistral_window", [](ModelSpec& s) { s.attention_window[1] += 1; }},
    {"Qwen2SwitchedOffWindow", "qwen2_biases", [](ModelSpec& s) { s.attention_window[1] = 37; }},
    {"Qwen2FirstLayers", "qwen2_window", [](ModelSpec& s) { s.attention_window[0] = 37; }},
    {"Qwen2LayerTypes", "qwen2_layer_types",
     [](ModelSpec& s) { std::swap(s.attention_window[0], s.attention_window[1]); }},
    {"Qwen3QkNorm", "qwen3", [](ModelSpec& s) { s.qk_norm = false; }},
    {"QkvBias", "qwen2_biases", [](ModelSpec& s) { s.qkv_bias = false; }},
    {"OutputBias", "llama_biases", [](ModelSpec& s) { s.attention_output_bias = false; }},
    {"MlpBias", "llama_biases", [](ModelSpec& s) { s.mlp_bias = false; }},
};

class WrongSettings : public testing::TestWithParam<WrongSetting> {};

TEST_P(WrongSettings, Show) {
  const GoldenModel golden = read_golden_model(GetParam().model);
  const ModelFolder folder(golden.folder);
  ModelSpec spec = folder.config().spec;
  GetParam().spoil(spec);
  const std::vector<double> logits = ReferenceModel(folder, spec).logits(golden.tokens);
  const double error = nmse(logits, golden.logits.values);
  fmt::print("{}: NMSE {:.2e}\n", GetParam().what, error);
  EXPECT_GE(error, kWrongNmse);
}

INSTANTIATE_TEST_SUITE_P(All, WrongSettings, testing::ValuesIn(kWrongSettings),
                         [](const auto& test) { return std::string(test.param.what); });

}  // namespace
}  // namespace longhaul::test
