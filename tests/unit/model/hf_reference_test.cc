// Configurations against what Hugging Face transformers makes of them: hf_reference.json, made by
// make_hf_reference.py. transformers computes frequencies in float32, hence the tolerance.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "model/hf_config.h"
#include "model/rope_frequencies.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

void expect_same(const ModelSpec& spec, const JsonField& want) {
  const auto integer = [&](const char* key) { return want.at(key).as_integer(0, kAny); };
  EXPECT_EQ(spec.vocab_size, integer("vocab_size"));
  EXPECT_EQ(spec.d_model, integer("d_model"));
  EXPECT_EQ(spec.d_ff, integer("d_ff"));
  EXPECT_EQ(spec.n_layers, integer("n_layers"));
  EXPECT_EQ(spec.n_heads, integer("n_heads"));
  EXPECT_EQ(spec.n_kv_heads, integer("n_kv_heads"));
  EXPECT_EQ(spec.head_dim, integer("head_dim"));
  EXPECT_EQ(spec.max_seq_len, integer("max_seq_len"));
  EXPECT_EQ(spec.norm_eps, want.at("norm_eps").as_number());
  EXPECT_EQ(spec.qkv_bias, want.at("qkv_bias").as_bool());
  EXPECT_EQ(spec.attention_output_bias, want.at("attention_output_bias").as_bool());
  EXPECT_EQ(spec.mlp_bias, want.at("mlp_bias").as_bool());
  EXPECT_EQ(spec.qk_norm, want.at("qk_norm").as_bool());
  EXPECT_EQ(spec.tied_embeddings, want.at("tied").as_bool());
  const JsonField windows = want.at("windows");
  ASSERT_EQ(spec.attention_window.size(), windows.size());
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const JsonField window = windows.at(i);
    EXPECT_EQ(spec.attention_window[i],
              window.json().is_null() ? ModelSpec::kNoWindow : window.as_integer(1, kAny));
  }
}

void expect_same_rope(const ModelSpec& spec, const JsonField& want) {
  const RopeFrequencies rope = rope_frequencies(spec);
  EXPECT_NEAR(rope.attention_scale, want.at("attention_scale").as_number(), 1e-12);
  const JsonField frequencies = want.at("inverse_frequencies");
  ASSERT_EQ(rope.inverse_frequencies.size(), frequencies.size());
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double value = frequencies.at(i).as_number();
    EXPECT_NEAR(rope.inverse_frequencies[i], value, 2e-6 * value) << "pair " << i;
  }
}

TEST(HfReference, EveryConfigurationMeansWhatTransformersMakesOfIt) {
  const auto path = test::source_path("tests/unit/model/hf_reference.json");
  const Json json = parse_json(read_file(path, std::size_t{1} << 20), path.string());
  const JsonField cases(json, path.string());
  ASSERT_GE(cases.size(), 20U);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const JsonField row = cases.at(i);
    SCOPED_TRACE(row.at("name").as_string());
    const HfConfig config = parse_hf_config(to_text(row.at("config").json()), "config.json");
    const JsonField want = row.at("expected");
    expect_same(config.spec, want);
    expect_same_rope(config.spec, want);
    const auto bos = want.find("bos");
    EXPECT_EQ(config.bos_token_id.value_or(-1), bos ? bos->as_integer(0, kAny) : -1);
    const JsonField eos = want.at("eos");
    ASSERT_EQ(config.eos_token_ids.size(), eos.size());
    for (std::size_t k = 0; k < eos.size(); ++k) {
      EXPECT_EQ(config.eos_token_ids[k], eos.at(k).as_integer(0, kAny));
    }
  }
}

}  // namespace
}  // namespace longhaul
