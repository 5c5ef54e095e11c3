// A job's ranks as one replica that evaluations and benchmarks drive step by step.
#pragma once
#include <functional>

#include "tools/eval/step_runner.h"
#include "tools/job/job.h"

namespace longhaul {

struct ReplicaRun {
  StepRunnerConfig steps;
  Link& link;
  const JobRun& job;
};

// Makes the ranks ready for the work, calls `drive`, and lets them go; errors are those of
// JobRanks::run. Throws kInvalidArgument for a plan of several replicas: a single one is driven.
void on_one_replica(JobRanks& ranks, const JobConfig& config, const JobWork& work,
                    const std::function<void(const ReplicaRun&)>& drive);

}  // namespace longhaul
