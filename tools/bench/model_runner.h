// Runs a model's tests on one worker: prompts in chunks, then single tokens, after a depth.
#pragma once
#include <cstdint>
#include <vector>

#include "tools/bench/bench_clock.h"
#include "tools/bench/model_results.h"
#include "tools/eval/eval_model.h"
#include "tools/eval/random_draws.h"

namespace longhaul::bench {

// Used by one thread, which becomes that of the kernels.
class ModelRunner {
 public:
  ModelRunner(const WorkerConfig& config, std::int64_t chunk_len, BenchClock clock);

  // The seconds that the test's own tokens take. Its depth is filled first, once for all tests of
  // the same depth in a row, and is shared by them. Tokens are random, those generated too: what is
  // picked is not looked at. Throws what the worker says.
  double run(const ModelTest& test);

 private:
  void fill_to(std::int64_t depth);
  void prefill(SequenceId sequence, std::span<const std::int32_t> tokens);
  void decode(SequenceId sequence, std::span<const std::int32_t> tokens);
  std::vector<std::int32_t> random_tokens(std::int64_t n);

  std::int64_t vocab_size_;
  std::int64_t chunk_len_;
  BenchClock clock_;
  StepRunner steps_;
  RandomDraws draws_{1};
  std::int64_t depth_ = 0;  // tokens in the sequence kDepth
  std::int64_t next_ = 1;   // sequence
};

}  // namespace longhaul::bench
