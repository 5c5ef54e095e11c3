// How a run comes to its ranks: as the one thread that it is, as threads of this process, or as the
// processes that mpirun or srun started. What runs on them is the same.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/wire/control_plane.h"
#include "cluster/wire/link.h"
#include "model/model_folder.h"
#include "tools/job_end.h"
#include "tools/job_order.h"
#include "tools/run_options.h"

namespace longhaul {

// The coordinator's way to the ranks.
struct RankLinks {
  std::function<std::unique_ptr<Link>(Rank)> link;  // once for each rank
  std::vector<std::string> hosts;                   // [rank]
  // What the ranks are doing, where the links do not tell it themselves; may be empty.
  std::function<std::vector<WorkerStatus>()> statuses;
};

// What the ranks are started for.
struct JobStart {
  const ModelFolder* model = nullptr;
  // Called on rank 0; throws why there is no plan.
  std::function<JobPlan(const ClusterSpec& found)> make_plan;
  // Called on a thread that may block, while the ranks serve: sends them everything up to
  // Shutdown. Returns whether nothing is left to do.
  std::function<bool(const JobPlan&, const RankLinks&, JobEnd&)> coordinate;
};

struct Launch {
  std::int64_t n_ranks = 1;
  // Empty for one rank, which needs no plan. Blocks until the job is over and returns what
  // `coordinate` returned; throws what make_plan threw. Any other failure ends the process.
  std::function<bool(const JobStart&)> start;
};

// Ranks as threads of this process.
bool start_on_threads(const RunOptions& options, std::int64_t n_ranks, const JobStart& job);

// For a process that mpirun or srun started: `run` is called on rank 0 only, the other ranks serve.
// Returns the exit status of this process.
int run_under_mpi(const RunOptions& options, const std::function<int(const Launch&)>& run);

}  // namespace longhaul
