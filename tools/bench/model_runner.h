// Runs a model's tests on the ranks of a replica: prompts in chunks, then single tokens, after a
// depth; and asks them what they attain meanwhile.
#pragma once
#include <cstdint>
#include <vector>

#include "base/work_clock.h"
#include "tools/bench/model_results.h"
#include "tools/eval/random_draws.h"
#include "tools/eval/step_runner.h"

namespace longhaul::bench {

struct ModelRunnerArgs {
  Link& link;  // of all ranks
  StepRunnerConfig steps = {};
  std::int64_t vocab_size = 0;
  // kProcessCpu: of a rank that is a thread of this process, with one thread for its kernels.
  WorkClock clock = WorkClock::kWall;
  std::int64_t cpu_read_bytes = 0;  // as MeasureRates has it
};

// What all ranks attain together.
struct RingRates {
  std::int64_t n_ranks = 0;
  std::int64_t n_threads = 0;  // of the first rank's kernels
  Rates together;              // the sum over the ranks, which measured at the same time
};

// Used by one thread.
class ModelRunner {
 public:
  explicit ModelRunner(const ModelRunnerArgs& args);

  // The seconds that the test's own tokens take. Its depth is filled first, once for all tests of
  // the same depth in a row, and is shared by them. Tokens are random, those generated too: what is
  // picked is not looked at. Throws what the worker says.
  double run(const ModelTest& test);

  // At this moment.
  RingRates rates();

 private:
  void fill_to(std::int64_t depth);
  void decode(SequenceId sequence, std::span<const std::int32_t> tokens);
  std::vector<std::int32_t> random_tokens(std::int64_t n);

  ModelRunnerArgs args_;
  StepRunner steps_;
  RandomDraws draws_{1};
  std::int64_t depth_ = 0;  // tokens in the sequence kDepth
  std::int64_t next_ = 1;   // sequence
};

}  // namespace longhaul::bench
