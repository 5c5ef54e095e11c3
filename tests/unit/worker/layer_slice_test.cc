// Parts of a layer's weights are smaller layers: the same arithmetic gives their share of what the
// whole gives.
#include "worker/layer_slice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "tests/support/compare.h"
#include "tests/support/tolerance.h"
#include "tests/unit/worker/tiny_models.h"
#include "worker/layer_compute.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kRows = 5;

ModelSpec spec_with_everything() {
  ModelSpec spec = tiny_spec();
  spec.d_ff = 3 * kInt8Group;
  spec.qkv_bias = spec.attention_output_bias = spec.mlp_bias = true;
  spec.qk_norm = true;
  spec.sink_logits = SinkLogits::kLearned;
  return spec;
}

// Five tokens before the attention of layer 1.
struct Step {
  explicit Step(DType dtype) : weights(tiny_weights(spec, dtype)), compute(*weights) {
    compute.set_rows(kRows);
    std::iota(compute.buffers().positions.begin(), compute.buffers().positions.end(), 100);
    compute.set_angles();
    const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5};
    compute.embed(tokens);
    compute.norm_for_attention(layer());
  }
  const LayerWeights& layer() const { return weights->layer({1}); }

  ModelSpec spec = spec_with_everything();
  std::shared_ptr<const Weights> weights;
  LayerCompute compute;
};

std::vector<float> values_of(const TensorView<const float, 3>& x) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < x.dim(0); ++row) {
    for (std::int64_t head = 0; head < x.dim(1); ++head) {
      const float* of_head = x[row][head].data();
      values.insert(values.end(), of_head, of_head + x.dim(2));
    }
  }
  return values;
}

// Sums of products of integers: the same bits in any part.
class LayerSliceOfIntegers : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, LayerSliceOfIntegers, testing::Values(DType::kI8, DType::kI4));

TEST_P(LayerSliceOfIntegers, ProjectionsOfSomeHeadsHaveTheBitsOfAll) {
  Step step(GetParam());
  const ModelSpec& spec = step.spec;
  Tensor<float, 3> q({kRows, 6, 16}), k({kRows, 3, 16}), v({kRows, 3, 16});
  step.compute.project_keys_values(step.layer(), k.view(), v.view());
  step.compute.project_queries(step.layer(), q.view());
  for (const Extent kv_heads : {Extent{0, 3}, Extent{0, 1}, Extent{1, 2}, Extent{1, 3}}) {
    const std::int64_t n = kv_heads.size();
    const LayerWeights part = heads_of(step.layer(), spec, kv_heads);
    Tensor<float, 3> part_q({kRows, 2 * n, 16}), part_k({kRows, n, 16}), part_v({kRows, n, 16});
    step.compute.project_keys_values(part, part_k.view(), part_v.view());
    step.compute.project_queries(part, part_q.view());
    const Extent heads{2 * kv_heads.begin, 2 * kv_heads.end};
    EXPECT_EQ(values_of(part_q.view()), values_of(q.view().slice(1, heads)));
    EXPECT_EQ(values_of(part_k.view()), values_of(k.view().slice(1, kv_heads)));
    EXPECT_EQ(values_of(part_v.view()), values_of(v.view().slice(1, kv_heads)));
    ASSERT_EQ(part.sink_logits.size(), static_cast<std::size_t>(2 * n));
    EXPECT_EQ(part.sink_logits.data(), step.layer().sink_logits.data() + heads.begin);
  }
}

// What parts give in sum, with the bias once, and what the whole adds to the residual stream.
struct Sums {
  std::vector<float> whole;
  std::vector<double> parts;
};

Sums sums_of(Step& step, const std::vector<LayerWeights>& parts, std::span<const float> bias,
             const std::function<void(const LayerWeights&, std::size_t, LayerCompute::Output)>& run,
             const std::function<void(LayerCompute::Output)>& run_whole) {
  const std::int64_t d_model = step.spec.d_model;
  const auto n = static_cast<std::size_t>(kRows * d_model);
  Sums sums{std::vector<float>(n), std::vector<double>(n)};
  const auto view = [&](std::vector<float>& x) {
    return TensorView<float, 2>(x.data(), {kRows, d_model});
  };
  run_whole({view(sums.whole), LinearOutput::kAccumulate});
  for (std::size_t i = 0; i < n; ++i) {
    sums.parts[i] = static_cast<double>(bias[i % static_cast<std::size_t>(d_model)]);
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    std::vector<float> share(n);
    run(parts[p], p, {view(share), LinearOutput::kOverwrite});
    for (std::size_t i = 0; i < n; ++i) sums.parts[i] += static_cast<double>(share[i]);
  }
  return sums;
}

TEST(LayerSlice, OutputsOfPartsAddUpToTheWholesWithoutItsBias) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI8, DType::kI4, DType::kF8E4m3}) {
    Step step(dtype);
    const LayerWeights& layer = step.layer();
    const std::vector<Extent> heads{{0, 1}, {1, 3}};
    Random random(base_seed());
    Tensor<float, 3> o({kRows, 6, 16});
    std::ranges::copy(random.normals(o.size()), o.data());
    const Sums attention = sums_of(
        step, {heads_of(layer, step.spec, heads[0]), heads_of(layer, step.spec, heads[1])},
        layer.o_bias,
        [&](const LayerWeights& part, std::size_t p, LayerCompute::Output to) {
          Tensor<float, 3> own({kRows, 2 * heads[p].size(), 16});
          const auto values = values_of(o.view().slice(1, {2 * heads[p].begin, 2 * heads[p].end}));
          std::copy(values.begin(), values.end(), own.data());
          step.compute.project_outputs(part, own.view(), to);
        },
        [&](LayerCompute::Output to) { step.compute.project_outputs(layer, o.view(), to); });
    EXPECT_TRUE(close(attention.whole, attention.parts, logits_tolerance(DType::kF32)));

    const Sums ffn = sums_of(
        step,
        {ffn_columns_of(layer, {0, kInt8Group}),
         ffn_columns_of(layer, {kInt8Group, 3 * kInt8Group})},
        layer.down_bias,
        [&](const LayerWeights& part, std::size_t, LayerCompute::Output to) {
          step.compute.feed_forward(part, to);
        },
        [&](LayerCompute::Output to) { step.compute.feed_forward(layer, to); });
    EXPECT_TRUE(close(ffn.whole, ffn.parts, logits_tolerance(DType::kF32)));
  }
}

}  // namespace
}  // namespace longhaul::test
