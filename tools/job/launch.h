// The three ways in which run_job (tools/job/job.h) comes to its ranks.
#pragma once
#include <cstdint>
#include <functional>

#include "tools/job/job.h"
#include "tools/job/job_end.h"

namespace longhaul {

using Lead = std::function<int(JobRanks&)>;

// One rank, which is a thread of this process; nothing is planned. `end`: this process' way out.
int run_alone(const JobConfig& config, JobEnd& end, const Lead& lead, const Task& task);

// So many ranks as threads of this process.
int run_on_threads(const JobConfig& config, JobEnd& end, std::int64_t n_ranks, const Lead& lead,
                   const Task& task);

// For a process that mpirun or srun started: `lead` is called on rank 0 only.
int run_on_processes(const JobConfig& config, const OpenModel& open_model, const Lead& lead,
                     const Task& task);

}  // namespace longhaul
