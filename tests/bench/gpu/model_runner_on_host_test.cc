// What `longhaul bench --device cuda` runs, on the emulated GPU.
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tools/bench/bench_model.h"
#include "tools/bench/model_runner.h"
#include "tools/eval/one_replica.h"

namespace longhaul::bench {
namespace {

TEST(BenchOnAGpu, RunsAModelsTests) {
  BenchFlags flags;
  flags.model = test::example_path("model").string();
  flags.job.device = DeviceChoice::kCuda;
  flags.job.chunk_len = 16;
  const BenchModel model(flags, /*hub_cache=*/{});
  EXPECT_EQ(model.facts().gpu, "cuda:0, host");
  const std::vector<ModelTest> tests = {{.n_prompt = 20}, {.n_gen = 2, .n_depth = 30}};
  run_job(flags.job, {}, [&](JobRanks& ranks) {
    const JobWork work{.model = model.source().get(),
                       .heads = model.heads(),
                       .profile = {},
                       .workload = model.workload(tests, ranks.n_ranks),
                       .n_threads = 1};
    on_one_replica(ranks, flags.job, work, [&](const ReplicaRun& replica) {
      ModelRunner runner(
          {.link = replica.link, .steps = replica.steps, .vocab_size = model.spec().vocab_size});
      for (const ModelTest& test : tests) EXPECT_GT(runner.run(test).seconds, 0);
    });
    return 0;
  });
}

}  // namespace
}  // namespace longhaul::bench
