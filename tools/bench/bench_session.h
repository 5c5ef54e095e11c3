// Everything of one model on ranks of one number of threads each: runs the tests one by one, and
// holds each repetition against what the ranks attain right before or after it. Prints nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/work_clock.h"
#include "tools/bench/bench_model.h"
#include "tools/bench/model_runner.h"
#include "tools/eval/one_replica.h"

namespace longhaul::bench {

struct BenchSessionArgs {
  const BenchModel& model;
  const ReplicaRun& replica;
  int n_repetitions = 5;
  bool warms_up = true;
  WorkClock clock = WorkClock::kWall;
  std::function<void(const std::string&)> on_progress;
};

// Used by one thread.
class BenchSession {
 public:
  explicit BenchSession(const BenchSessionArgs& args);

  const ModelFacts& facts() const { return facts_; }

  // The test's row of model_columns(). Throws what the ranks say.
  std::vector<Cell> run(const ModelTest& test);

 private:
  Rates measure();
  void warm_up(ModelTest test);

  BenchSessionArgs args_;
  ModelFacts facts_;
  ModelRunner runner_;
};

// Memory that each rank of these hosts reads to measure what it attains: together on the fullest
// host as much as one rank alone, which is far more than caches hold, but not too little for each.
std::int64_t cpu_read_bytes(const std::vector<std::string>& hosts);

}  // namespace longhaul::bench
