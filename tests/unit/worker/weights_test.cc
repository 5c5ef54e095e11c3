// Loading: no copy where none is needed, conversion where it is, and errors that name the tensor.
#include "worker/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "kernels/int4_weights.h"
#include "kernels/int8_weights.h"
#include "model/unread_tensors.h"
#include "partition/weight_bytes.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul {
namespace {

using test::ModelFiles;
using test::TemporaryFolder;
using test::write_model;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr const char* kQ1 = "model.layers.1.self_attn.q_proj.weight";

std::string load_error(const TemporaryFolder& folder) {
  try {
    Weights::load(ModelFolder(folder.path()));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    return error.what();
  }
  return "no error";
}

float element(const WeightView& w, std::int64_t i) {
  if (w.dtype == DType::kF32) return static_cast<const float*>(w.data)[i];
  return to_float(static_cast<const BFloat16*>(w.data)[i]);
}

TEST(Weights, F32AndBf16AreUsedWhereTheyAreMapped) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = test::tiny_spec(), .dtype = dtype});
    const ModelFolder model(folder.path());
    const void* mapped = model.tensor(kQ1).bytes.data();
    const Weights weights = Weights::load(model);
    EXPECT_EQ(weights.layer({1}).q.dtype, dtype);
    EXPECT_EQ(weights.layer({1}).q.data, mapped);
    EXPECT_EQ(weights.embedding().data, model.tensor("model.embed_tokens.weight").bytes.data());
  }
}

TEST(Weights, AreCopiedOnceWhereMappedFilesAreNotWanted) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = test::tiny_spec(), .dtype = dtype});
    const ModelFolder model(folder.path());
    const TensorBytes mapped = model.tensor(kQ1);
    const Weights weights =
        Weights::load(model, std::nullopt, {}, Fp8Inputs::kAsTheyAre, WeightFiles::kCopied);
    const WeightView& q = weights.layer({1}).q;
    EXPECT_EQ(q.dtype, dtype);
    EXPECT_NE(q.data, mapped.bytes.data());
    EXPECT_EQ(std::memcmp(q.data, mapped.bytes.data(), mapped.bytes.size()), 0);
    EXPECT_EQ(weights.matrix_bytes(), Weights::load(model).matrix_bytes());
  }
}

TEST(Weights, StayMappedWithoutTheFolderObject) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = test::tiny_spec()});
  const Weights weights = Weights::load(ModelFolder(folder.path()));
  const Weights want = Weights::synthetic(test::tiny_spec(), DType::kF32, 7);
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(element(weights.layer({2}).down, i), element(want.layer({2}).down, i));
  }
  EXPECT_THAT(weights.layer({0}).attention_norm, ElementsAreArray(want.layer({0}).attention_norm));
  EXPECT_THAT(weights.final_norm(), ElementsAreArray(want.final_norm()));
}

TEST(Weights, F16F64AndMisalignedTensorsAreConvertedOnce) {
  const Weights want = Weights::synthetic(test::tiny_spec(), DType::kF32, 7);
  struct Case {
    DType dtype;
    std::size_t n_spaces;
    double relative;
  };
  for (const Case& c : {Case{DType::kF16, 0, 0x1p-11}, Case{DType::kF64, 0, 0},
                        Case{DType::kF32, 1, 0}, Case{DType::kBf16, 1, 0x1p-8}}) {
    const TemporaryFolder folder;
    write_model(folder.path(),
                {.spec = test::tiny_spec(), .dtype = c.dtype, .n_header_spaces = c.n_spaces});
    const Weights weights = Weights::load(ModelFolder(folder.path()));
    EXPECT_EQ(weights.layer({1}).gate.dtype, DType::kF32);
    for (std::int64_t i = 0; i < 500; ++i) {
      const float w = element(want.layer({1}).gate, i);
      EXPECT_NEAR(element(weights.layer({1}).gate, i), w,
                  c.relative * std::abs(w) + 1e-7 * (c.relative > 0));
    }
  }
}

TEST(Weights, SayWhichTensorHasWhichShape) {
  const TemporaryFolder folder;
  ModelFiles files{.spec = test::tiny_spec()};
  files.spec.d_ff = 81;
  write_model(folder.path(), files);
  const std::filesystem::path config = folder.path() / "config.json";
  std::string text = read_file(config, 10000);
  text.replace(text.find("\"intermediate_size\": 81"), 23, "\"intermediate_size\": 80");
  replace_file(config, text);
  const std::string error = load_error(folder);
  EXPECT_THAT(error, HasSubstr("model.layers.0.mlp.gate_proj.weight"));
  EXPECT_THAT(error, HasSubstr("[81, 48]"));
  EXPECT_THAT(error, HasSubstr("[80, 48]"));
  EXPECT_THAT(error, HasSubstr(folder.path().string()));
}

TEST(Weights, SayWhatIsMissing) {
  for (const std::string name : {"model.layers.2.mlp.down_proj.weight", "lm_head.weight"}) {
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = test::tiny_spec(), .left_out = name});
    EXPECT_THAT(load_error(folder), HasSubstr(name));
  }
}

TEST(Weights, TiedMatricesAreOne) {
  ModelSpec spec = test::tiny_spec();
  spec.tied_embeddings = true;
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = spec});
  const Weights weights = Weights::load(ModelFolder(folder.path()));
  EXPECT_EQ(weights.lm_head().data, weights.embedding().data);
}

TEST(Weights, BiasesAndQkNormsAreReadWhenTheModelHasThem) {
  ModelSpec spec = test::tiny_spec();
  spec.qkv_bias = spec.attention_output_bias = spec.mlp_bias = true;
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = spec});
  const Weights weights = Weights::load(ModelFolder(folder.path()));
  const Weights want = Weights::synthetic(spec, DType::kF32, 7);
  EXPECT_THAT(weights.layer({1}).k_bias, ElementsAreArray(want.layer({1}).k_bias));
  EXPECT_THAT(weights.layer({1}).o_bias, ElementsAreArray(want.layer({1}).o_bias));
  EXPECT_THAT(weights.layer({1}).down_bias, ElementsAreArray(want.layer({1}).down_bias));
  EXPECT_TRUE(weights.layer({1}).q_norm.empty());
}

TEST(Weights, SinkLogitsAreReadOrZeroAsConfigurationsSay) {
  ModelSpec spec = test::tiny_spec();
  spec.sink_logits = SinkLogits::kLearned;
  const TemporaryFolder learned;
  write_model(learned.path(), {.spec = spec});
  const Weights weights = Weights::load(ModelFolder(learned.path()));
  const Weights want = Weights::synthetic(spec, DType::kF32, 7);
  EXPECT_THAT(weights.layer({1}).sink_logits, ElementsAreArray(want.layer({1}).sink_logits));
  EXPECT_EQ(sink_logits_of(weights, {1}, {1}).data(),
            weights.layer({1}).sink_logits.data() + spec.gqa_group());
  spec.sink_logits = SinkLogits::kZero;
  const TemporaryFolder zero;
  write_model(zero.path(), {.spec = spec});
  const std::vector<float> zeros(static_cast<std::size_t>(spec.n_heads), 0.0F);
  EXPECT_THAT(Weights::load(ModelFolder(zero.path())).layer({0}).sink_logits,
              ElementsAreArray(zeros));
  // Those that config.json does not speak of are not passed over.
  std::filesystem::copy_file(learned.path() / "model.safetensors",
                             zero.path() / "model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(load_error(zero), HasSubstr("\"softmax_type\": \"learnable\""));
}

// A model of a tiny spec with one more vector of values, which config.json does not speak of.
std::string error_beside(const std::string& name, float value, ModelSpec spec = test::tiny_spec()) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = std::move(spec), .added = {{name, {value, value}, {2}}}});
  return load_error(folder);
}

// They were passed over, and answers were those of another model.
TEST(Weights, TensorsThatNobodyReadsAreRefusedWithTheLikelyField) {
  const auto expect_refused = [](const std::string& name, const std::string& reason,
                                 const ModelSpec& spec = test::tiny_spec()) {
    EXPECT_THAT(error_beside(name, 1, spec),
                testing::AllOf(HasSubstr("model.safetensors: nobody would read tensor " + name),
                               HasSubstr(reason)));
  };
  expect_refused("model.layers.3.input_layernorm.weight", "num_hidden_layers 3");
  expect_refused("model.layers.0.self_attn.q_proj.bias", "\"attention_bias\" is not true");
  expect_refused("model.layers.2.mlp.up_proj.bias", "\"mlp_bias\" is not true");
  expect_refused("model.layers.1.self_attn.q_norm.weight", "qwen3 does");
  expect_refused("model.layers.1.self_attn.sinks", "\"softmax_type\": \"learnable\"");
  expect_refused("model.layers.1.mlp.experts.0.up_proj.weight", "has no such tensor");
  expect_refused("model.layers.1.mlp.up_proj.weight_scale", "quantization_config");
  expect_refused("model.embed_norm.weight", "has no such tensor");
  expect_refused("lm_head.bias", "has no such tensor");
  ModelSpec normed = test::tiny_spec();
  normed.model_type = "qwen3";
  normed.qk_norm = true;
  expect_refused("model.layers.1.mlp.up_proj.bias", "qwen3 has no such bias", normed);
  expect_refused("model.layers.1.self_attn.k_proj.bias", "\"attention_bias\" is not true", normed);
}

TEST(Weights, AStageRefusesWhatTheWholeModelWouldNotRead) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = test::tiny_spec(),
                              .added = {{"model.layers.7.mlp.up_proj.weight", {1}, {1}}}});
  EXPECT_THROW(Weights::load(ModelFolder(folder.path()), {1, 2}), Error);
}

TEST(Weights, TensorsThatChangeNothingArePassedOver) {
  for (const char* name :
       {"model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.attn.bias",
        "model.layers.0.attn.masked_bias", "model.layers.0.self_attn.q_proj.input_scale",
        "model.layers.0.self_attn.k_proj.k_scale"}) {
    EXPECT_EQ(error_beside(name, 1), "no error") << name;
  }
  EXPECT_EQ(error_beside("model.layers.0.mlp.up_proj.bias", 0), "no error");
}

TEST(Weights, OtherTensorsThatNobodyReadsAreNamed) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = test::tiny_spec(),
                              .added = {{"value_head.weight", {1}, {1}},
                                        {"model.rotary_emb.inv_freq", {1}, {1}},
                                        {"model.visual.blocks.0.norm1.weight", {1}, {1}}}});
  EXPECT_EQ(load_error(folder), "no error");
  EXPECT_THAT(unread_tensors(ModelFolder(folder.path())),
              testing::ElementsAre("model.visual.blocks.0.norm1.weight", "value_head.weight"));
}

TEST(Weights, AllThatAModelHasIsKnownToBeRead) {
  ModelSpec biased = test::tiny_spec();
  biased.qkv_bias = biased.attention_output_bias = biased.mlp_bias = true;
  ModelSpec normed = test::tiny_spec();
  normed.model_type = "qwen3";
  normed.qk_norm = true;
  ModelSpec sinks = test::tiny_spec();
  sinks.sink_logits = SinkLogits::kLearned;
  for (const ModelSpec& spec : {biased, normed, sinks}) {
    for (const DType dtype : {DType::kBf16, DType::kI8, DType::kF8E4m3}) {
      const TemporaryFolder folder;
      write_model(folder.path(), {.spec = spec, .dtype = dtype});
      EXPECT_THAT(unread_tensors(ModelFolder(folder.path())), testing::IsEmpty());
    }
  }
}

TEST(Weights, AHeadBesideTiedEmbeddingsIsComparedWithThem) {
  ModelSpec spec = test::tiny_spec();
  spec.tied_embeddings = true;
  const Weights weights = Weights::synthetic(spec, DType::kF32, 7);
  const auto n = static_cast<std::size_t>(spec.vocab_size * spec.d_model);
  const auto* embedding = static_cast<const float*>(weights.embedding().data);
  for (const bool is_other : {false, true}) {
    std::vector<float> head(embedding, embedding + n);
    head[n / 2] += is_other ? 1.0F : 0.0F;
    const TemporaryFolder folder;
    write_model(
        folder.path(),
        {.spec = spec, .added = {{"lm_head.weight", head, {spec.vocab_size, spec.d_model}}}});
    EXPECT_EQ(load_error(folder), "no error");
    EXPECT_THAT(unread_tensors(ModelFolder(folder.path())), testing::IsEmpty());
    EXPECT_EQ(has_another_head_than_the_embedding(ModelFolder(folder.path())), is_other);
  }
}

TEST(Weights, AStageHasItsLayersOnly) {
  const TemporaryFolder folder;
  write_model(folder.path(),
              {.spec = test::tiny_spec(), .left_out = "model.layers.0.mlp.up_proj.weight"});
  const Weights weights = Weights::load(ModelFolder(folder.path()), {1, 3});
  EXPECT_EQ(weights.layers(), (Extent{1, 3}));
  EXPECT_EQ(weights.layer({2}).q.n_out, 96);
  EXPECT_THROW(Weights::load(ModelFolder(folder.path()), {1, 4}), Error);
}

TEST(Weights, SyntheticOnesDependOnTheSeedAndHaveTheRightScale) {
  const Weights a = Weights::synthetic(test::tiny_spec(), DType::kF32, 1);
  const Weights b = Weights::synthetic(test::tiny_spec(), DType::kF32, 1);
  const Weights c = Weights::synthetic(test::tiny_spec(), DType::kBf16, 2);
  double square = 0;
  bool differs = false;
  const std::int64_t n = a.layer({0}).q.n_out * a.layer({0}).q.n_in;
  for (std::int64_t i = 0; i < n; ++i) {
    EXPECT_EQ(element(a.layer({0}).q, i), element(b.layer({0}).q, i));
    differs = differs || std::abs(element(a.layer({0}).q, i) - element(c.layer({0}).q, i)) > 0.01;
    square += element(a.layer({0}).q, i) * element(a.layer({0}).q, i);
  }
  EXPECT_TRUE(differs);
  EXPECT_NEAR(square / static_cast<double>(n), 1.0 / 48, 0.1 / 48);
  EXPECT_EQ(c.matrix_bytes() * 2, a.matrix_bytes());
}

TEST(Weights, AreConvertedToTheTypeThatIsAskedFor) {
  const ModelSpec spec = test::tiny_spec();
  const Weights want = Weights::synthetic(spec, DType::kF32, 7);
  for (const DType in_files : {DType::kF32, DType::kF16, DType::kBf16}) {
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = spec, .dtype = in_files});
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const Weights weights = Weights::load(ModelFolder(folder.path()), dtype);
      EXPECT_EQ(weights.layer({0}).up.dtype, dtype);
      EXPECT_EQ(weights.embedding().dtype, dtype);
      for (std::int64_t i = 0; i < 500; ++i) {
        const float w = element(want.layer({0}).up, i);
        // Rounded to bf16, after f16 where that is in the files.
        EXPECT_NEAR(element(weights.layer({0}).up, i), w, (0x1p-8 + 0x1p-11) * std::abs(w) + 1e-7);
      }
    }
  }
}

TEST(Weights, AsInt8TheyAreWithinHalfAStepAndTheEmbeddingIsBf16) {
  const ModelSpec spec = test::tiny_spec();
  const Weights want = Weights::synthetic(spec, DType::kF32, 7);
  for (const DType in_files : {DType::kF32, DType::kF16, DType::kBf16}) {
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = spec, .dtype = in_files});
    const Weights weights = Weights::load(ModelFolder(folder.path()), DType::kI8);
    EXPECT_EQ(weights.embedding().dtype, DType::kBf16);
    EXPECT_EQ(weights.layer({1}).o.group, spec.gqa_group() * spec.head_dim);
    EXPECT_EQ(weights.layer({1}).down.group, kInt8Group);
    const auto expect_close = [](const WeightView& got, const WeightView& exact) {
      ASSERT_EQ(got.dtype, DType::kI8);
      for (std::int64_t o = 0; o < exact.n_out; ++o) {
        for (std::int64_t i = 0; i < exact.n_in; ++i) {
          const float w = element(exact, o * exact.n_in + i);
          ASSERT_NEAR(int8_weight(got, o, i), w, 0.51 * got.scales[o] + 0x1p-8 * std::abs(w));
        }
      }
    };
    expect_close(weights.layer({0}).q, want.layer({0}).q);
    expect_close(weights.layer({2}).o, want.layer({2}).o);
    expect_close(weights.layer({2}).down, want.layer({2}).down);
    expect_close(weights.lm_head(), want.lm_head());
  }
}

TEST(Weights, AsInt4TheyAreMadeOfAnyFiles) {
  const ModelSpec spec = test::tiny_spec();
  const Weights want = Weights::synthetic(spec, DType::kI4, 7);
  const Weights exact = Weights::synthetic(spec, DType::kF32, 7);
  const DType types[] = {DType::kF32, DType::kF16, DType::kBf16, DType::kF64, DType::kI8};
  for (const DType in_files : types) {
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = spec, .dtype = in_files});
    const Weights weights = Weights::load(ModelFolder(folder.path()), DType::kI4);
    EXPECT_EQ(weights.embedding().dtype, DType::kBf16);
    EXPECT_EQ(weights.layer({1}).o.group, spec.gqa_group() * spec.head_dim);
    EXPECT_EQ(weights.layer({1}).down.group, kInt8Group);
    const bool is_exact = in_files == DType::kF32 || in_files == DType::kF64;
    for (const auto& [got, same, wide] :
         {std::tuple{&weights.layer({0}).q, &want.layer({0}).q, &exact.layer({0}).q},
          std::tuple{&weights.layer({2}).down, &want.layer({2}).down, &exact.layer({2}).down},
          std::tuple{&weights.lm_head(), &want.lm_head(), &exact.lm_head()}}) {
      ASSERT_EQ(got->dtype, DType::kI4);
      for (std::int64_t o = 0; o < wide->n_out; ++o) {
        for (std::int64_t i = 0; i < wide->n_in; ++i) {
          const float w = int4_weight(*got, o, i);
          if (is_exact) {
            ASSERT_EQ(w, int4_weight(*same, o, i));
          }
          // Uniform ones: at most a bit more than the step of the largest.
          ASSERT_NEAR(w, element(*wide, o * wide->n_in + i), 1.8 / 7 / std::sqrt(wide->n_in));
        }
      }
    }
  }
}

TEST(Weights, Int8FilesAreReadAsTheyAre) {
  const ModelSpec spec = test::tiny_spec();
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = spec, .dtype = DType::kI8});
  const ModelFolder model(folder.path());
  const Weights want = Weights::synthetic(spec, DType::kI8, 7);
  const Weights weights = Weights::load(model);
  EXPECT_EQ(weights.embedding().dtype, DType::kBf16);
  EXPECT_EQ(weights.lm_head().dtype, DType::kI8);
  const Weights widened = Weights::load(model, DType::kF32);
  for (const auto& [got, wide, w] :
       {std::tuple{&weights.layer({1}).down, &widened.layer({1}).down, &want.layer({1}).down},
        std::tuple{&weights.layer({2}).o, &widened.layer({2}).o, &want.layer({2}).o}}) {
    ASSERT_EQ(got->dtype, DType::kI8);
    ASSERT_EQ(wide->dtype, DType::kF32);
    EXPECT_EQ(got->group, w->group);
    for (std::int64_t o = 0; o < w->n_out; ++o) {
      for (std::int64_t i = 0; i < w->n_in; ++i) {
        ASSERT_EQ(int8_weight(*got, o, i), int8_weight(*w, o, i));
        ASSERT_EQ(element(*wide, o * w->n_in + i), int8_weight(*w, o, i));
      }
    }
  }
}

TEST(Weights, Int8FilesNeedTheirScales) {
  for (const std::string name :
       {"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight_scale"}) {
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = test::tiny_spec(), .dtype = DType::kI8, .left_out = name});
    EXPECT_THAT(load_error(folder), HasSubstr(name));
  }
}

TEST(Weights, AWeightThatIsNoNumberIsNamed) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = test::tiny_spec()});
  const std::filesystem::path file = folder.path() / "model.safetensors";
  const ModelFolder before(folder.path());  // owns what its tensors look at
  const TensorBytes tensor = before.tensor(kQ1);
  std::string text = read_file(file, 10'000'000);
  const std::string first(reinterpret_cast<const char*>(tensor.bytes.data()), 16);
  text.replace(text.find(first), 4, std::string("\0\0\x80\x7f", 4));  // infinity
  replace_file(file, text);
  EXPECT_NO_THROW(Weights::load(ModelFolder(folder.path())));
  try {
    Weights::load(ModelFolder(folder.path()), DType::kI8);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(error.what(), HasSubstr(kQ1));
  }
}

std::int64_t vector_bytes(const Weights& weights) {
  std::size_t n = weights.final_norm().size();
  for (std::int64_t number = weights.layers().begin; number < weights.layers().end; ++number) {
    const LayerWeights& w = weights.layer({number});
    for (const auto* vector :
         {&w.attention_norm, &w.q_bias, &w.k_bias, &w.v_bias, &w.o_bias, &w.q_norm, &w.k_norm,
          &w.ffn_norm, &w.gate_bias, &w.up_bias, &w.down_bias}) {
      n += vector->size();
    }
  }
  return static_cast<std::int64_t>(n * sizeof(float));
}

TEST(Weights, AStageHasTheBytesThatWerePlanned) {
  for (const bool tied : {false, true}) {
    ModelSpec spec = test::tiny_spec();
    spec.tied_embeddings = tied;
    spec.qkv_bias = spec.attention_output_bias = spec.mlp_bias = tied;  // as llama has them
    spec.vocab_size = 101;
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = spec});
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI8, DType::kI4, DType::kF8E4m3}) {
      for (const Extent layers : {Extent{0, 3}, Extent{0, 1}, Extent{1, 2}, Extent{2, 3}}) {
        const Weights weights = Weights::load(ModelFolder(folder.path()), layers, dtype);
        EXPECT_EQ(static_cast<std::int64_t>(weights.matrix_bytes()) + vector_bytes(weights),
                  stage_weight_bytes(weights.spec(), dtype, layers))
            << name_of(dtype) << " layers " << layers.begin << " to " << layers.end << " tied "
            << tied;
      }
    }
  }
}

TEST(Weights, SyntheticOnesOfSomeLayersAreTheFirstOfTheWholeModel) {
  ModelSpec part = test::tiny_spec();
  part.n_layers = 2;
  part.attention_window.resize(2);
  const Weights whole = Weights::synthetic(test::tiny_spec(), DType::kBf16, 5);
  const Weights some = Weights::synthetic(part, DType::kBf16, 5);
  for (std::int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(element(some.layer({1}).up, i), element(whole.layer({1}).up, i));
    EXPECT_EQ(element(some.lm_head(), i), element(whole.lm_head(), i));
  }
}

TEST(Weights, SyntheticOnesOfAStageAreThoseOfTheWholeModel) {
  const Weights whole = Weights::synthetic(test::tiny_spec(), DType::kBf16, 5);
  const Weights stage = Weights::synthetic(test::tiny_spec(), {1, 2}, DType::kBf16, 5);
  EXPECT_EQ(stage.layers(), (Extent{1, 2}));
  EXPECT_EQ(stage.embedding().data, nullptr);
  for (std::int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(element(stage.layer({1}).up, i), element(whole.layer({1}).up, i));
  }
}

TEST(Weights, SyntheticOnesAreNoDenormals) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Weights weights = Weights::synthetic(test::tiny_spec(), dtype, 9);
    for (std::int64_t i = 0; i < weights.embedding().n_out * weights.embedding().n_in; ++i) {
      const float w = element(weights.embedding(), i);
      EXPECT_TRUE(w == 0 || std::isnormal(w)) << i;
    }
  }
}

}  // namespace
}  // namespace longhaul
