// The benchmark of a model and the probes beside it, with a small model on the emulated GPU: that
// they run to their end and count what they say.
#include <gtest/gtest.h>

#include "kernels/probes/gpu_probes.h"
#include "tests/bench/gpu/model_bench.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::bench {
namespace {

TEST(GpuBench, MeasuresASmallModel) {
  Rates rates;
  {
    cuda::Stream stream(0);
    rates = GpuProbes(stream, {.n_tokens = 16, .n_in = 64, .n_out = 96}).measure();
  }
  EXPECT_GT(rates.pair_flops, 0);
  EXPECT_GT(rates.read_bytes, 0);

  ModelSpec spec = test::tiny_spec();
  spec.d_ff = 3 * kInt8Group;
  spec.attention_window.assign(static_cast<std::size_t>(spec.n_layers), ModelSpec::kNoWindow);
  const ModelBenchResult result = bench_model(rates, {.spec = spec,
                                                      .document_tokens = 200,
                                                      .chunk_len = 64,
                                                      .n_prefill_layers = 2,
                                                      .n_decode_steps = 2,
                                                      .cache_limit_bytes = std::size_t{400} << 10});
  EXPECT_GT(result.prefill_seconds, 0);
  EXPECT_GT(result.decode_seconds, 0);
  // What is in the cache for decoding fits, and what follows in whole chunks.
  EXPECT_GT(result.tokens_that_fit, 202);
  EXPECT_EQ((result.tokens_that_fit - 203) % 64, 0);
  EXPECT_GT(result.promised_tokens, result.tokens_that_fit);  // it knows nothing of the limit
}

}  // namespace
}  // namespace longhaul::bench
