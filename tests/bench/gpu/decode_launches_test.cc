// How many kernels a decode step launches for a layer: on the emulated GPU, whose work is left
// undone. What a launch costs a GPU and its host only a GPU shows.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/device/step_graph.h"
#include "tests/bench/gpu/decode_host.h"
#include "tests/bench/gpu/filled_model.h"
#include "tests/cuda_on_host/device_memory.h"
#include "worker/transformer.h"

namespace longhaul::bench {
namespace {

constexpr std::int64_t kBlockSize = 64;
constexpr std::int64_t kPromptTokens = 700;  // more than one range of attention
constexpr std::size_t kMostLaunches = 12;    // for a layer, the step's others included

// Of a decode step, the second one after the prompts.
std::size_t n_launches(const Weights& weights, KvType cache_type, std::int64_t n_sequences) {
  const ModelSpec& spec = weights.spec();
  cuda::Stream stream(0);
  const HeadTable heads = every_other_streaming(spec);
  const KvBlockShape blocks = {.block_size = kBlockSize,
                               .head_dim = spec.head_dim,
                               .k_type = cache_type,
                               .v_type = cache_type};
  const CacheLayout layout(heads, {0, spec.n_layers}, blocks);
  BlockPool pool(layout.shape(), std::nullopt, stream.ref());
  LayerCompute compute(weights, stream.ref());
  Transformer transformer(compute, layout);
  std::vector<SequenceCache> caches;
  for (std::int64_t i = 0; i < n_sequences; ++i) caches.emplace_back(layout, pool);
  const std::vector<std::int32_t> prompt = some_tokens(kPromptTokens, spec.vocab_size);
  for (SequenceCache& cache : caches) {
    const BatchSegment segment = {&cache, {0, kPromptTokens}, {0}};
    transformer.forward({.tokens = prompt,
                         .segments = {&segment, 1},
                         .wanted = Extent{kPromptTokens - 1, kPromptTokens},
                         .is_prompt = true});
  }
  for (std::int64_t step = 0; step < 2; ++step) {
    std::vector<BatchSegment> segments;
    for (std::int64_t i = 0; i < n_sequences; ++i)
      segments.push_back(
          {&caches[static_cast<std::size_t>(i)], {i, i + 1}, {kPromptTokens + step}});
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(n_sequences), 1);
    const NotedStep noted(stream.ref());
    compute.logits(transformer.forward({.tokens = tokens, .segments = segments}));
    submit_noted(stream.ref());
  }
  return stream.steps()->n_commands();
}

Weights weights_of(const ModelSpec& spec, DType dtype) {
  return Weights::synthetic(spec, dtype, 1, {Device::kCuda, 0});
}

class DecodeLaunches : public testing::Test {
 protected:
  static void SetUpTestSuite() { cuda_on_host::leave_work_undone(std::size_t{8} << 30U); }
};

TEST_F(DecodeLaunches, AreAtMostTwelveALayer) {
  constexpr std::int64_t kLayers = 32;
  for (const DType dtype : {DType::kBf16, DType::kI8, DType::kI4}) {
    const Weights weights = weights_of(narrow_model(kLayers), dtype);
    const Weights of_one_layer = weights_of(narrow_model(1), dtype);
    for (const KvType cache : {KvType::kBf16, KvType::kInt8, KvType::kInt4}) {
      for (const std::int64_t n_sequences : {1, 5}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + ", caches of " + std::string(name_of(cache)) +
                     ", " + std::to_string(n_sequences) + " sequences");
        const std::size_t n = n_launches(weights, cache, n_sequences);
        EXPECT_LE(n, kMostLaunches * kLayers);
        const std::size_t n_besides = n_launches(of_one_layer, cache, n_sequences);
        EXPECT_LE(n - n_besides, (kMostLaunches - 1) * (kLayers - 1));
      }
    }
  }
}

// Norms of heads take none, biases of weights of floats one for each product that has them.
TEST_F(DecodeLaunches, OfOtherShapesAreFew) {
  const ModelSpec plain = narrow_model(2);
  ModelSpec with_norms = plain;
  with_norms.qk_norm = true;
  ModelSpec with_biases = plain;
  with_biases.qkv_bias = true;
  for (const DType dtype : {DType::kBf16, DType::kI8, DType::kI4}) {
    const auto n_of = [&](const ModelSpec& spec) {
      return n_launches(weights_of(spec, dtype), KvType::kInt8, 2);
    };
    const std::size_t n = n_of(plain);
    EXPECT_EQ(n_of(with_norms), n) << name_of(dtype);
    EXPECT_EQ(n_of(with_biases), is_integer(dtype) ? n : n + 2) << name_of(dtype);
  }
}

}  // namespace
}  // namespace longhaul::bench
