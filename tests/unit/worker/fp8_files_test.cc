// Loading models whose files are fp8: codes where they are mapped, scales in every published form,
// other types made of them, and errors that name folder and tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "kernels/fp8_weights.h"
#include "kernels/int4_weights.h"
#include "kernels/int8_weights.h"
#include "partition/weight_bytes.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/tiny_models.h"
#include "worker/weights.h"

namespace longhaul {
namespace {

using test::TemporaryFolder;
using test::write_model;
using testing::HasSubstr;

constexpr const char* kUp = "model.layers.1.mlp.up_proj.weight";

// Three blocks of 128 along the FFN, the last of them not full.
ModelSpec blocks_spec() {
  ModelSpec spec = test::tiny_spec();
  spec.d_ff = 300;
  return spec;
}

std::string error_of(const TemporaryFolder& folder, ErrorCode code) {
  try {
    Weights::load(ModelFolder(folder.path()));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(error.what(), HasSubstr(folder.path().string()));
    return error.what();
  }
  return "no error";
}

void replace_in(const std::filesystem::path& file, const std::string& before,
                const std::string& after) {
  std::string text = read_file(file, 10'000'000);
  ASSERT_NE(text.find(before), std::string::npos) << before;
  text.replace(text.find(before), before.size(), after);
  replace_file(file, text);
}

// Of f32 or bf16.
float element(const WeightView& w, std::int64_t output, std::int64_t input) {
  const std::int64_t i = output * w.n_in + input;
  if (w.dtype == DType::kF32) return static_cast<const float*>(w.data)[i];
  return to_float(static_cast<const BFloat16*>(w.data)[i]);
}

TEST(Fp8Files, CodesAreUsedWhereTheyAreMapped) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = blocks_spec(), .dtype = DType::kF8E4m3});
  const ModelFolder model(folder.path());
  EXPECT_EQ(model.config().spec.weight_dtype, DType::kF8E4m3);
  const Weights weights = Weights::load(model);
  const Weights want = Weights::synthetic(blocks_spec(), DType::kF8E4m3, 7);
  EXPECT_EQ(weights.layer({1}).up.data, model.tensor(kUp).bytes.data());
  EXPECT_EQ(weights.embedding().dtype, DType::kBf16);
  EXPECT_EQ(weights.lm_head().data, model.tensor("lm_head.weight").bytes.data());
  for (const auto& [got, same] : {std::tuple{&weights.layer({1}).up, &want.layer({1}).up},
                                  std::tuple{&weights.layer({2}).down, &want.layer({2}).down},
                                  std::tuple{&weights.layer({0}).o, &want.layer({0}).o}}) {
    ASSERT_EQ(got->dtype, DType::kF8E4m3);
    for (std::int64_t o = 0; o < same->n_out; ++o) {
      for (std::int64_t i = 0; i < same->n_in; ++i)
        ASSERT_EQ(fp8_weight(*got, o, i), fp8_weight(*same, o, i));
    }
  }
  EXPECT_EQ(weights.matrix_bytes(), want.matrix_bytes());
}

TEST(Fp8Files, CodesAreCopiedOnceWhereMappedFilesAreNotWanted) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = blocks_spec(), .dtype = DType::kF8E4m3});
  const ModelFolder model(folder.path());
  const Weights weights =
      Weights::load(model, std::nullopt, {}, Fp8Inputs::kAsTheyAre, WeightFiles::kCopied);
  const TensorBytes mapped = model.tensor(kUp);
  const WeightView& up = weights.layer({1}).up;
  EXPECT_NE(up.data, mapped.bytes.data());
  EXPECT_EQ(std::memcmp(up.data, mapped.bytes.data(), mapped.bytes.size()), 0);
  EXPECT_EQ(fp8_weight(up, 1, 2), fp8_weight(Weights::load(model).layer({1}).up, 1, 2));
}

TEST(Fp8Files, OtherTypesAreMadeOfThem) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = blocks_spec(), .dtype = DType::kF8E4m3});
  const ModelFolder model(folder.path());
  const Weights codes = Weights::load(model);
  const Weights floats = Weights::load(model, DType::kF32);
  const Weights halves = Weights::load(model, DType::kBf16);
  const Weights bytes = Weights::load(model, DType::kI8);
  const Weights nibbles = Weights::load(model, DType::kI4);
  const WeightView& up = codes.layer({1}).up;
  const Int4Matrix want_nibbles =
      Int4Matrix::quantise({up.n_out, up.n_in}, [&](std::int64_t o, float* row) {
        for (std::int64_t i = 0; i < up.n_in; ++i) row[i] = fp8_weight(up, o, i);
      });
  for (std::int64_t o = 0; o < up.n_out; ++o) {
    for (std::int64_t i = 0; i < up.n_in; ++i) {
      const float w = fp8_weight(up, o, i);
      ASSERT_EQ(element(floats.layer({1}).up, o, i), w);
      ASSERT_EQ(element(halves.layer({1}).up, o, i), to_float(to_bf16(w)));
      ASSERT_NEAR(int8_weight(bytes.layer({1}).up, o, i), w, 0.51F * bytes.layer({1}).up.scales[o]);
    }
  }
}

TEST(Fp8Files, AreMadeOfOtherFiles) {
  const Weights want = Weights::synthetic(blocks_spec(), DType::kF32, 7);
  for (const DType in_files : {DType::kF32, DType::kF16, DType::kBf16, DType::kI8}) {
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = blocks_spec(), .dtype = in_files});
    const Weights weights = Weights::load(ModelFolder(folder.path()), DType::kF8E4m3);
    EXPECT_EQ(weights.embedding().dtype, DType::kBf16);
    EXPECT_EQ(weights.lm_head().dtype, DType::kBf16);
    const WeightView& up = weights.layer({1}).up;
    ASSERT_EQ(up.dtype, DType::kF8E4m3);
    for (std::int64_t o = 0; o < up.n_out; ++o) {
      for (std::int64_t i = 0; i < up.n_in; ++i) {
        const float w = element(want.layer({1}).up, o, i);
        ASSERT_NEAR(fp8_weight(up, o, i), w, 0.075F * std::abs(w) + 2e-3F);
      }
    }
  }
}

TEST(Fp8Files, MatricesOfLayersSayThatInputsAreRounded) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = blocks_spec(), .dtype = DType::kF8E4m3});
  const Weights weights = Weights::load(ModelFolder(folder.path()), Extent{0, 3}, std::nullopt, {},
                                        Fp8Inputs::kQuantised);
  const LayerWeights& layer = weights.layer({1});
  for (const WeightView* w :
       {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
    EXPECT_EQ(w->fp8.inputs, Fp8Inputs::kQuantised);
  EXPECT_EQ(layer.down.inputs({7, 200}).fp8.inputs, Fp8Inputs::kQuantised);
}

TEST(Fp8Files, TheirStagesHaveTheBytesThatArePlanned) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = blocks_spec(), .dtype = DType::kF8E4m3});
  const Weights weights = Weights::load(ModelFolder(folder.path()), Extent{1, 2});
  const ModelSpec& spec = weights.spec();
  EXPECT_EQ(static_cast<std::int64_t>(weights.matrix_bytes()) + 4 * 2 * spec.d_model,
            stage_weight_bytes(spec, DType::kF8E4m3, {1, 2}));
}

TEST(Fp8Files, NeedTheirScales) {
  for (const std::string& name : {std::string(kUp), std::string(kUp) + "_scale_inv"}) {
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = blocks_spec(), .dtype = DType::kF8E4m3, .left_out = name});
    EXPECT_THAT(error_of(folder, ErrorCode::kCorruptData), HasSubstr(name));
  }
}

TEST(Fp8Files, SayWhichScalesHaveTheWrongShape) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = blocks_spec(), .dtype = DType::kF8E4m3});
  replace_in(folder.path() / "config.json", "[128, 128]", "[64, 128]");
  const std::string error = error_of(folder, ErrorCode::kCorruptData);
  EXPECT_THAT(error, HasSubstr("model.layers.0.self_attn.q_proj.weight_scale_inv"));
  EXPECT_THAT(error, HasSubstr("[1, 1]"));
  EXPECT_THAT(error, HasSubstr("[2, 1]"));
}

TEST(Fp8Files, CutOffFilesAreNamed) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = blocks_spec(), .dtype = DType::kF8E4m3});
  const std::filesystem::path file = folder.path() / "model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 100);
  EXPECT_THAT(error_of(folder, ErrorCode::kCorruptData), HasSubstr("cut off"));
}

TEST(Fp8Files, CodesAndScalesThatAreNoNumbersAreNamed) {
  for (const bool is_code : {true, false}) {
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = blocks_spec(), .dtype = DType::kF8E4m3});
    const std::filesystem::path file = folder.path() / "model.safetensors";
    const std::string name = is_code ? kUp : std::string(kUp) + "_scale_inv";
    std::string text = read_file(file, 10'000'000);
    {
      const ModelFolder before(folder.path());  // owns what its tensors look at
      const TensorBytes tensor = before.tensor(name);
      const std::string bytes(reinterpret_cast<const char*>(tensor.bytes.data()),
                              tensor.bytes.size());
      const std::string wrong = is_code ? "\x7f" : std::string("\0\0\xc0\xff", 4);
      const std::size_t at = is_code ? 49 : 0;
      text.replace(text.find(bytes) + at, wrong.size(), wrong);
    }
    replace_file(file, text);
    const std::string error = error_of(folder, ErrorCode::kCorruptData);
    EXPECT_THAT(error, HasSubstr(name));
    EXPECT_THAT(error, HasSubstr(is_code ? "at [1, 1]" : "nan"));
  }
}

TEST(Fp8Files, ConfigurationsMustSaySo) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = blocks_spec(), .dtype = DType::kF8E4m3});
  replace_in(folder.path() / "config.json", "quantization_config", "quantised_somehow");
  EXPECT_THAT(error_of(folder, ErrorCode::kCorruptData), HasSubstr("quantization_config"));
}

TEST(Fp8Files, LayersOfTwoTypesAreNotMadeOneUnasked) {
  const TemporaryFolder folder;
  write_model(folder.path(), {.spec = blocks_spec(), .dtype = DType::kF8E4m3});
  const std::filesystem::path file = folder.path() / "model.safetensors";
  // The same bytes as half as many halves.
  const std::string shape = R"("shape": [300, 48])";
  std::string text = read_file(file, 10'000'000);
  const std::size_t entry = text.find('"' + std::string(kUp) + '"');
  text.replace(text.find("F8_E4M3", entry), 7, "BF16   ");
  text.replace(text.find("BF16   \"", entry), 8, "BF16\"   ");
  text.replace(text.find(shape, entry), shape.size(), R"("shape": [300, 24])");
  replace_file(file, text);
  const std::string error = error_of(folder, ErrorCode::kUnsupported);
  EXPECT_THAT(error, HasSubstr(kUp));
  EXPECT_THAT(error, HasSubstr("--weights"));
}

}  // namespace
}  // namespace longhaul
