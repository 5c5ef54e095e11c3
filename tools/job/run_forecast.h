// What the cost model said of a run's steps beside what they took, step by step as they were; and
// the speeds with which it would have been right.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/progress.h"
#include "model/model_spec.h"
#include "partition/cluster_spec.h"
#include "partition/cost_model.h"
#include "partition/workload.h"
#include "tools/job/job_order.h"
#include "tools/job/two_factors.h"

namespace longhaul {

struct ForecastTimes {
  double predicted_s = 0;
  double measured_s = 0;
  std::int64_t n_tokens = 0;
};

// Thread-safe. What it is given must outlive it.
class RunForecast {
 public:
  RunForecast(const JobPlan& job, const ModelSpec& spec, const Workload& workload);

  void add(const StepOfRun& step);

  ForecastTimes prefill() const;
  ForecastTimes decode() const;
  // "prefill 12.1 s predicted, 13.0 s measured (+7%); decode ..."; empty before any step.
  std::string text() const;
  // The job's cluster with speeds that fit: two factors for the prefill steps (matrices,
  // attention), two for the decode steps (reading memory, and latencies, which stand for all that a
  // step costs however little it reads). What was not seen stays as it was, bandwidths of links do.
  ClusterSpec calibrated() const;

 private:
  // The stages of a replica, and until when each works on what it was given.
  struct Lane {
    std::vector<StageCost> stages;
    std::vector<double> busy_until_s;
    DecodeCost decode;  // of the step that was asked for last
    std::int64_t decode_rows = 0;
    std::int64_t decode_tokens = 0;
  };
  double prefill_seconds(Lane& lane, Extent tokens, ChunkCost& slowest) const;
  const DecodeCost& decode_cost(Lane& lane, std::size_t replica, const StepOfRun& step) const;

  const JobPlan& job_;
  const ModelSpec& spec_;
  const Workload& workload_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Lane> lanes_;
  ForecastTimes prefill_;
  ForecastTimes decode_;
  TwoFactorFit prefill_fit_;  // of matrices, and of the rest
  TwoFactorFit decode_fit_;   // of reading memory, and of latencies
};

}  // namespace longhaul
