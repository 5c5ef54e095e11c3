// The plan of a job: made once for each work, on rank 0, when the cluster is known and before any
// weights are read.
#pragma once
#include <cstdint>

#include "partition/cluster_spec.h"
#include "partition/make_plan.h"
#include "partition/plan.h"
#include "partition/workload.h"
#include "tools/job/job.h"
#include "tools/job/job_config.h"
#include "tools/job/job_order.h"

namespace longhaul {

// A workload with what a plan chooses itself: its chunks and blocks. Pure.
Workload as_planned(Workload workload, const Plan& plan);

// What the config asks of the planner. Pure.
PlanOptions plan_options(const JobConfig& config);

// Buffers grow with the chunk: the length of chunks, halved as often as it takes until the plan
// fits, but not below 64 tokens or a block; the workload's own where none of these fits. Pure.
std::int64_t chunk_len_that_fits(PlanRequest request);

// Lets make_plan choose the length of chunks: by cost, near the default of the cluster's devices,
// and short enough to fit. Pure.
void choose_chunks_by_cost(PlanRequest& request);

// The plan for the work on this cluster; what the config leaves open (chunks, stages, replicas) is
// chosen by cost. Throws kOutOfMemory with everything itemised when it does not fit. Pure.
Plan new_plan(const JobConfig& config, const JobWork& work, const ClusterSpec& cluster);

// The plan of config.plan, or one made for `found` (or for config.cluster). Throws kInvalidArgument
// for plans and cluster files that are not for this job or say something else than a flag,
// kOutOfMemory for a plan that the ranks' memory does not hold, and what new_plan throws. Reads the
// files.
JobPlan plan_job(const JobConfig& config, const JobWork& work, const ClusterSpec& found);

}  // namespace longhaul
