// The benchmark of a model and the probes beside it, with a small model on the emulated GPU: that
// they run to their end and count what they say.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/device/step_graph.h"
#include "base/file.h"
#include "base/json.h"
#include "kernels/probes/gpu_probes.h"
#include "kernels/softmax_state.h"
#include "tests/bench/gpu/gpu_buffers.h"
#include "tests/bench/gpu/gpu_report.h"
#include "tests/bench/gpu/model_bench.h"
#include "tests/support/paths.h"
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

// Decode is timed as replay, and every figure lands in the file.
TEST(GpuBench, WritesFiguresOfReplays) {
  const test::TemporaryFolder folder;
  cuda::Stream stream(0);
  const cuda::Buffer x(1024);
  cuda::fill_with_zeros(stream, x.data(), x.bytes());
  const SoftmaxStateView state = {TensorView<float, 3>(floats(x), {2, 2, 4}),
                                  TensorView<float, 2>(floats(x) + 16, {2, 2}),
                                  TensorView<float, 2>(floats(x) + 20, {2, 2})};
  GpuReport report(stream, {.pair_flops = 1e12, .read_bytes = 1e9}, folder.path() / "figures");
  const auto call = [&] { clear(stream.ref(), state); };
  report.bytes("one by one", 64, call);
  EXPECT_EQ(stream.steps(), nullptr);
  report.bytes("replay", 64, call, Queueing::kReplay);
  ASSERT_NE(stream.steps(), nullptr);
  EXPECT_GT(stream.steps()->n_launched(), 0);
  const std::string lines = read_file(folder.path() / "figures", 1 << 16);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  const Json last = parse_json(lines.substr(lines.find('\n') + 1), "figures");
  const JsonField figure(last, "figures");
  EXPECT_EQ(figure.at("name").as_string(), "replay");
  EXPECT_GT(figure.at("host_microseconds").as_number(), 0);
  EXPECT_EQ(figure.at("attainable").as_number(), 1);
}

}  // namespace
}  // namespace longhaul::bench
