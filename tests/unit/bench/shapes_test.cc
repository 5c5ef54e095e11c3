// Parameters as the models' pages and safetensors headers give them.
#include "tools/bench/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/paths.h"
#include "worker/weights.h"

namespace longhaul::bench {
namespace {

TEST(Shapes, HaveThePublishedNumbersOfParameters) {
  const std::map<std::string, std::int64_t> published = {
      {"llama-3.2-1b", 1'235'814'400},   {"llama-3.2-3b", 3'212'749'824},
      {"llama-3-8b", 8'030'261'248},     {"llama-3.1-8b", 8'030'261'248},
      {"llama-3.1-70b", 70'553'706'496}, {"llama-2-7b", 6'738'415'616},
      {"tinyllama-1.1b", 1'100'048'384}, {"mistral-7b", 7'248'023'552},
      {"qwen2.5-0.5b", 494'032'768},     {"qwen2.5-7b", 7'615'616'512},
      {"qwen3-8b", 8'190'735'360}};
  EXPECT_EQ(shape_names().size(), published.size());
  for (const auto& [name, n] : published) {
    const ModelShape shape = model_shape(name);
    EXPECT_EQ(n_parameters(shape.spec), n) << name;
    EXPECT_NO_THROW(shape.spec.validate()) << name;
    EXPECT_EQ(shape.name, name);
  }
}

TEST(Shapes, CountWhatTheWeightsHold) {
  const ModelShape shape = model_shape(test::example_path("model").string());
  const Weights weights = Weights::synthetic(shape.spec, DType::kF32, 1);
  std::int64_t n =
      static_cast<std::int64_t>(weights.matrix_bytes() / 4 + weights.final_norm().size());
  for (std::int64_t i = 0; i < shape.spec.n_layers; ++i) {
    const LayerWeights& w = weights.layer({i});
    for (const auto* v :
         {&w.attention_norm, &w.ffn_norm, &w.q_bias, &w.k_bias, &w.v_bias, &w.o_bias, &w.q_norm,
          &w.k_norm, &w.gate_bias, &w.up_bias, &w.down_bias}) {
      n += static_cast<std::int64_t>(v->size());
    }
  }
  EXPECT_EQ(n_parameters(shape.spec), n);
}

TEST(Shapes, ComeFromNamesFilesAndFolders) {
  EXPECT_EQ(model_shape("Llama-3.2-1B").name, "llama-3.2-1b");
  const std::string folder = test::example_path("model").string();
  EXPECT_EQ(model_shape(folder).name, "model");
  EXPECT_EQ(model_shape(folder + "/config.json").name, "model");
  EXPECT_EQ(model_shape(folder).spec.n_layers, 4);
  try {
    model_shape("llama-9");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("known are tinyllama-1.1b, "));
  }
}

TEST(Shapes, SomeLayersAreAModelOfTheirOwn) {
  const ModelSpec whole = model_shape("llama-3.1-8b").spec;
  const ModelSpec part = with_layers(whole, 4);
  EXPECT_NO_THROW(part.validate());
  // 28 layers of 218,112,000 parameters are left out.
  EXPECT_EQ(n_parameters(part), 8'030'261'248 - 28 * 218'112'000LL);
  EXPECT_THROW(with_layers(whole, 0), Error);
  EXPECT_THROW(with_layers(whole, 33), Error);
}

}  // namespace
}  // namespace longhaul::bench
