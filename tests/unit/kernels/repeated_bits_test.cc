// The same call gives the same bits, however often it is made: what threads race for would differ.
// LONGHAUL_TEST_REPETITIONS says how often, twice by default; tools/dev/gpu_check.sh takes 200 on
// a GPU. Outputs are NaN before each call, so that what is not written shows, too.
#include <cstdlib>
#include <cstring>
#include <limits>

#include "kernels/cuda/hopper_attention.h"
#include "kernels/int4_weights.h"
#include "kernels/int8_weights.h"
#include "kernels/linear.h"
#include "kernels/top_k.h"
#include "tests/unit/kernels/attention_case.h"
#include "tests/unit/kernels/weight_there.h"

namespace longhaul::test {
namespace {

int n_repetitions() {
  const char* said = std::getenv("LONGHAUL_TEST_REPETITIONS");
  return said == nullptr ? 2 : std::max(2, std::atoi(said));
}

class RepeatedBits : public EachDevice {
 protected:
  void TearDown() override {
    set_hopper_attention_rows(kUsualHopperRows);
    EachDevice::TearDown();
  }
};
// On CPUs other tests compare bits, of all instruction sets.
INSTANTIATE_TEST_SUITE_P(Device, RepeatedBits, testing::Values(ComputeDevice{Device::kCuda, {}}),
                         device_test_name);

template <typename Call>
void expect_the_same_bits(const std::string& what, const Call& call) {
  const std::vector<float> first = call();
  for (const float value : first) ASSERT_FALSE(std::isnan(value)) << what;
  for (int i = 1; i < n_repetitions(); ++i) {
    const std::vector<float> again = call();
    ASSERT_EQ(again.size(), first.size());
    ASSERT_EQ(std::memcmp(again.data(), first.data(), first.size() * sizeof(float)), 0)
        << what << ", call " << i;
  }
}

// Prefill, decode and the plain kernel, with every type of cache, masked and split along keys.
TEST_P(RepeatedBits, OfAttention) {
  struct Kind {
    const char* name;
    std::int64_t q_len;
    std::int64_t hopper_rows;
    KvType type;
  };
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  const Kind kinds[] = {
      {"Hopper bf16", 40, 1, KvType::kBf16},       {"Hopper int4", 40, 1, KvType::kInt4},
      {"prefill bf16", 40, kNever, KvType::kBf16}, {"prefill int8", 40, kNever, KvType::kInt8},
      {"decode bf16", 1, kNever, KvType::kBf16},   {"decode int8", 1, kNever, KvType::kInt8},
      {"decode int4", 1, kNever, KvType::kInt4},   {"plain", 8, kNever, KvType::kF32},
      {"Hopper kivi4", 40, 1, KvType::kKivi4},     {"prefill kivi2", 40, kNever, KvType::kKivi2},
      {"decode kivi4", 1, kNever, KvType::kKivi4}, {"decode kivi2", 1, kNever, KvType::kKivi2},
      {"Hopper fp8", 40, 1, KvType::kFp8},         {"prefill fp8", 40, kNever, KvType::kFp8},
      {"decode fp8", 1, kNever, KvType::kFp8}};
  for (const Kind& kind : kinds) {
    set_hopper_attention_rows(kind.hopper_rows);
    for (const AttentionMask mask : {AttentionMask{}, AttentionMask{.sink = 16, .recent = 80}}) {
      AttentionProblem problem(stream(),
                               {.q_len = kind.q_len,
                                .n_kv_heads = 2,
                                .gqa_group = 4,
                                .head_dim = 128,
                                .n_blocks = 20,
                                .k_type = kind.type,
                                .v_type = kind.type,
                                .mask = mask,
                                .after_keys = true},
                               base_seed());
      expect_the_same_bits(kind.name, [&] { return problem.run(); });
      if (HasFatalFailure()) return;
    }
  }
}

std::vector<float> product(StreamRef stream, const Memory<float>& x, const WeightView& weight,
                           std::int64_t n_tokens) {
  const Memory out(stream, n_tokens * weight.n_out, std::numeric_limits<float>::quiet_NaN());
  linear(stream, {.x = TensorView<const float, 2>(x.data(), {n_tokens, weight.n_in}),
                  .weight = weight,
                  .bias = {},
                  .out = TensorView<float, 2>(out.data(), {n_tokens, weight.n_out})});
  return out.values();
}

TEST_P(RepeatedBits, OfProducts) {
  Random random(base_seed());
  constexpr std::int64_t kIn = 384;
  constexpr std::int64_t kOut = 320;
  const Memory<float> x(stream(), random.normals(300 * kIn));
  const std::vector<float> values = random.normals(kOut * kIn, 0.05);
  const Memory<float> weight(stream(), values);
  const WeightView floats = {
      .data = weight.data(), .dtype = DType::kF32, .n_out = kOut, .n_in = kIn};
  const auto read_row = [&](std::int64_t output, float* row) {
    std::copy_n(values.begin() + output * kIn, kIn, row);
  };
  const Int8Shape shape = {.n_out = kOut, .n_in = kIn};
  const Int8Matrix bytes = Int8Matrix::quantise(shape, read_row);
  const Int4Matrix halves = Int4Matrix::quantise(shape, read_row);
  const WeightThere int8(stream(), bytes.view());
  const WeightThere int4(stream(), halves.view());
  for (const std::int64_t n_tokens : {1, 17, 300}) {
    const std::string rows = std::to_string(n_tokens) + " rows";
    expect_the_same_bits("f32, " + rows, [&] { return product(stream(), x, floats, n_tokens); });
    for (const WeightThere* weight_there : {&int8, &int4}) {
      const WeightView& view = weight_there->view();
      expect_the_same_bits(std::string(name_of(view.dtype)) + ", " + rows,
                           [&] { return product(stream(), x, view, n_tokens); });
    }
    if (HasFatalFailure()) return;
  }
}

TEST_P(RepeatedBits, OfTheLargestLogits) {
  constexpr std::int64_t kVocabulary = 5000;
  Random random(base_seed());
  const Memory<float> logits(stream(), random.normals(4 * kVocabulary));
  expect_the_same_bits("top_k", [&] {
    std::vector<float> values(4 * 8, std::numeric_limits<float>::quiet_NaN());
    std::vector<std::int32_t> ids(values.size());
    top_k(stream(), {.logits = TensorView<const float, 2>(logits.data(), {4, kVocabulary}),
                     .ids = TensorView<std::int32_t, 2>(ids.data(), {4, 8}),
                     .values = TensorView<float, 2>(values.data(), {4, 8})});
    values.insert(values.end(), ids.begin(), ids.end());
    return values;
  });
}

}  // namespace
}  // namespace longhaul::test
