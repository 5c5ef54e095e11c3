// The engine against Hugging Face's logits: every stored model, every instruction set of this
// machine, in one chunk, in uneven chunks and token by token.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/dtype.h"
#include "kernels/isa.h"
#include "model/model_folder.h"
#include "tests/golden/engine.h"
#include "tests/golden/golden_models.h"
#include "tests/support/reference_model.h"

namespace longhaul::test {
namespace {

struct Difference {
  double nmse = 0;
  std::int64_t n_other_argmax = 0;
  double largest_margin = 0;  // of those
};

Difference difference(const Logits& got, const Logits& want) {
  Difference out;
  double error = 0;
  double square = 0;
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    error += std::pow(got.values.at(i) - want.values[i], 2);
    square += std::pow(want.values[i], 2);
  }
  out.nmse = error / square;
  for (std::int64_t i = 0; i < want.n_tokens; ++i) {
    if (argmax(got.row(i)) == argmax(want.row(i))) continue;
    ++out.n_other_argmax;
    out.largest_margin = std::max(out.largest_margin, margin(want.row(i)));
  }
  return out;
}

DType weight_dtype(const GoldenModel& golden) {
  return ModelFolder(golden.folder).tensor("model.layers.0.self_attn.q_proj.weight").dtype;
}

// Sets the instruction set for one test.
class WithIsa {
 public:
  explicit WithIsa(Isa isa) : before_(active_isa()) { set_active_isa(isa); }
  ~WithIsa() { set_active_isa(before_); }
  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;

 private:
  Isa before_;
};

std::vector<std::string> models_with(bool bf16) {
  std::vector<std::string> names = golden_model_names();
  std::erase_if(names, [bf16](const std::string& name) {
    return (weight_dtype(read_golden_model(name)) == DType::kBf16) != bf16;
  });
  return names;
}

using ModelAndIsa = std::tuple<std::string, Isa>;
std::string name_of_case(const testing::TestParamInfo<ModelAndIsa>& test) {
  return fmt::format("{}_{}", std::get<0>(test.param), name_of(std::get<1>(test.param)));
}

class Float32Weights : public testing::TestWithParam<ModelAndIsa> {
 protected:
  void expect_equal(std::int64_t chunk_len) {
    const WithIsa isa(std::get<1>(GetParam()));
    const GoldenModel golden = read_golden_model(std::get<0>(GetParam()));
    const Logits logits = Engine(golden.folder).append(golden.tokens, chunk_len);
    const Difference found = difference(logits, golden.logits);
    fmt::print("{} in chunks of {}: NMSE {:.2e}\n", golden.name, chunk_len, found.nmse);
    EXPECT_LE(found.nmse, 1e-9);
    EXPECT_EQ(found.n_other_argmax, 0) << "largest margin " << found.largest_margin;
  }
};

TEST_P(Float32Weights, OneChunk) { expect_equal(300); }
TEST_P(Float32Weights, UnevenChunks) { expect_equal(77); }
TEST_P(Float32Weights, TokenByToken) { expect_equal(1); }

INSTANTIATE_TEST_SUITE_P(AllModels, Float32Weights,
                         testing::Combine(testing::ValuesIn(models_with(/*bf16=*/false)),
                                          testing::ValuesIn(supported_isas())),
                         name_of_case);

class Bf16Weights : public testing::TestWithParam<ModelAndIsa> {};

TEST_P(Bf16Weights, Measure) {
  const WithIsa isa(std::get<1>(GetParam()));
  const GoldenModel golden = read_golden_model(std::get<0>(GetParam()));
  const Logits logits = Engine(golden.folder).append(golden.tokens, 300);
  const Difference found = difference(logits, golden.logits);
  const Difference theirs = difference(read_bf16_logits(golden), golden.logits);
  const ReferenceModel rounding(ModelFolder(golden.folder), ReferenceModel::Inputs::kRoundedToBf16);
  const Logits oracle{golden.logits.n_tokens, golden.logits.vocab_size,
                      rounding.logits(golden.tokens)};
  const Difference rounded = difference(logits, oracle);
  const auto print = [&](const char* what, const Difference& d) {
    fmt::print("{}, {}: NMSE {:.2e}, {} other argmax, largest margin {:.4f}\n", golden.name, what,
               d.nmse, d.n_other_argmax, d.largest_margin);
  };
  print("against float32", found);
  print("Hugging Face in bf16 against float32", theirs);
  print("against the oracle with rounded inputs", rounded);
}

INSTANTIATE_TEST_SUITE_P(AllModels, Bf16Weights,
                         testing::Combine(testing::ValuesIn(models_with(/*bf16=*/true)),
                                          testing::ValuesIn(supported_isas())),
                         name_of_case);

}  // namespace
}  // namespace longhaul::test
