// Runs a model's tests on the ranks of a replica: prompts in chunks, then single tokens, after a
// depth; and asks them what they attain meanwhile.
#pragma once
#include <cstdint>
#include <vector>

#include "base/work_clock.h"
#include "coordinator/prompt_lookup.h"
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

  struct Run {
    double seconds = 0;        // that the test's own tokens take
    std::int64_t n_steps = 0;  // that generated
  };
  // Its depth is filled first, once for all tests of the same depth in a row; the test's sequences
  // are forks of it, as requests on a document are. Tokens are random, those generated too: what is
  // picked is not looked at. Throws what the worker says.
  Run run(const ModelTest& test);

  // At this moment.
  RingRates rates();

 private:
  void fill_to(std::int64_t depth);
  void decode(std::span<const SequenceId> sequences, std::int64_t n_tokens);
  std::int64_t quote(SequenceId sequence, const ModelTest& test);
  std::vector<std::int32_t> random_tokens(std::int64_t n);

  ModelRunnerArgs args_;
  StepRunner steps_;
  RandomDraws draws_{1};
  std::vector<std::int32_t> depth_;  // tokens in the sequence kDepth
  LookupDocumentRef index_;          // of them, once there are passages to quote
  std::int64_t next_ = 1;            // sequence
};

}  // namespace longhaul::bench
