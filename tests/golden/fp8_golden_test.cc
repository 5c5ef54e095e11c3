// Models whose files are fp8, in the three published forms, against the logits that transformers
// computes from the dequantised weights (make_fp8_goldens.py), with every instruction set.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "base/dtype.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/threads.h"
#include "model/model_folder.h"
#include "tests/golden/engine.h"
#include "tests/golden/golden_models.h"
#include "tests/support/reference_model.h"

namespace longhaul::test {
namespace {

// As f32 the weights are the published formula's values: float32 beside float32.
constexpr double kFloat32Nmse = 1e-10;
// As in the files the layers are, too, and lm_head is bf16, for which its input is rounded: beside
// float32, and beside the oracle that rounds there, whose input may fall on the other side.
constexpr double kNmse = 1e-5;
constexpr double kOracleNmse = 1e-7;
// Beside the oracle that quantises the same numbers to integers, as in worker_golden_test.cc. (Not
// int4: codes are in simple ratios, so that its steps have many ties, which a float's rounding
// decides; tests/unit/worker/fp8_files_test.cc has it.)
constexpr double kInt8OracleNmse = 1e-4;
// All weights and what enters products rounded to bf16.
constexpr double kBf16Nmse = 1e-3;
// What enters products rounded to fp8: steps of an eighth.
constexpr double kFp8InputsNmse = 2e-2;

constexpr std::int64_t kChunks[] = {150, 37, 1};

GoldenModel read_fp8_model(const std::string& name) {
  return read_golden_model("../fp8_models/" + name);
}

double nmse(const Logits& got, const Logits& want) {
  double error = 0;
  double square = 0;
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    const double off = got.values.at(i) - want.values[i];
    error += off * off;
    square += want.values[i] * want.values[i];
  }
  return error / square;
}

class Fp8Models : public testing::TestWithParam<std::tuple<std::string, Isa>> {
 protected:
  Fp8Models() : golden_(read_fp8_model(std::get<0>(GetParam()))), before_(active_isa()) {
    set_active_isa(std::get<1>(GetParam()));
    set_kernel_threads(1);
  }
  ~Fp8Models() override {
    set_active_isa(before_);
    set_kernel_threads(0);
  }
  Logits computed(std::int64_t chunk_len, std::optional<DType> weights = std::nullopt) const {
    return Engine(golden_.folder, std::nullopt, KvType::kF32, weights)
        .append(golden_.tokens, chunk_len);
  }

  GoldenModel golden_;

 private:
  Isa before_;
};

TEST_P(Fp8Models, AreComputedAsTheyLieInTheFiles) {
  const ReferenceModel oracle(ModelFolder(golden_.folder), ReferenceModel::Inputs::kRoundedToBf16);
  const Logits rounded = {golden_.logits.n_tokens, golden_.logits.vocab_size,
                          oracle.logits(golden_.tokens)};
  for (const std::int64_t chunk_len : kChunks) {
    const Logits logits = computed(chunk_len);
    const double found = nmse(logits, golden_.logits);
    const double from_oracle = nmse(logits, rounded);
    fmt::print("{} in chunks of {}: NMSE {:.2e}, from the rounding oracle {:.2e}\n", golden_.name,
               chunk_len, found, from_oracle);
    EXPECT_LE(found, kNmse);
    EXPECT_LE(from_oracle, kOracleNmse);
  }
}

TEST_P(Fp8Models, BecomeFloatsExactly) {
  for (const std::int64_t chunk_len : kChunks)
    EXPECT_LE(nmse(computed(chunk_len, DType::kF32), golden_.logits), kFloat32Nmse);
}

TEST_P(Fp8Models, BecomeOtherTypes) {
  const ReferenceModel oracle(ModelFolder(golden_.folder), ReferenceModel::Inputs::kInt8);
  const Logits integers = {golden_.logits.n_tokens, golden_.logits.vocab_size,
                           oracle.logits(golden_.tokens)};
  EXPECT_LE(nmse(computed(37, DType::kBf16), golden_.logits), kBf16Nmse);
  EXPECT_LE(nmse(computed(37, DType::kI8), integers), kInt8OracleNmse);
}

// A wall, far from what is found.
TEST(Fp8Inputs, ThatAreRoundedChangeLogitsALittle) {
  const GoldenModel golden = read_fp8_model("qwen3_blocks");
  const Logits logits =
      Engine(golden.folder, std::nullopt, KvType::kF32, std::nullopt, Fp8Inputs::kQuantised)
          .append(golden.tokens, 37);
  const double found = nmse(logits, golden.logits);
  fmt::print("{} with inputs of fp8: NMSE {:.2e}\n", golden.name, found);
  EXPECT_LE(found, kFp8InputsNmse);
  EXPECT_GT(found, kNmse) << "are they rounded at all?";
}

TEST(Fp8Inputs, AreRoundedBesideBlocksOf128Only) {
  for (const char* name : {"llama_channels", "llama_tensors_tied"}) {
    const ModelFolder folder(read_fp8_model(name).folder);
    EXPECT_THROW(Weights::load(folder, std::nullopt, {}, Fp8Inputs::kQuantised), Error) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Models,
                         testing::Combine(testing::Values("qwen3_blocks", "llama_channels",
                                                          "llama_tensors_tied"),
                                          testing::ValuesIn(supported_isas())),
                         [](const auto& test) {
                           return fmt::format("{}_{}", std::get<0>(test.param),
                                              name_of(std::get<1>(test.param)));
                         });

}  // namespace
}  // namespace longhaul::test
