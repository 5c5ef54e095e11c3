// What `longhaul bench --device cuda` runs, on the emulated GPU.
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tools/bench/bench_model.h"
#include "tools/bench/model_runner.h"

namespace longhaul::bench {
namespace {

TEST(BenchOnAGpu, RunsAModelsTests) {
  BenchFlags flags;
  flags.model = test::source_path("examples/needle/model").string();
  flags.device = "cuda";
  const BenchModel model(flags);
  EXPECT_EQ(model.device().kind, Device::kCuda);
  EXPECT_EQ(model.facts().gpu, "cuda:0, host");
  ModelRunner runner(model.worker_config(/*n_threads=*/1), /*chunk_len=*/16, BenchClock::kWall);
  EXPECT_GT(runner.run({.n_prompt = 20, .n_gen = 0, .n_depth = 0}), 0);
  EXPECT_GT(runner.run({.n_prompt = 0, .n_gen = 2, .n_depth = 30}), 0);
}

}  // namespace
}  // namespace longhaul::bench
