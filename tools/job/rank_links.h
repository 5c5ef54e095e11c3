// From the coordinator to the ranks: a link to each, and all links of a replica as one.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "cluster/wire/control_plane.h"
#include "cluster/wire/link.h"
#include "partition/plan.h"
#include "tools/job/job.h"
#include "tools/job/job_end.h"

namespace longhaul {

struct RankLinks {
  std::function<std::unique_ptr<Link>(Rank)> link;      // once for each rank
  std::vector<std::string> hosts;                       // [rank]
  std::vector<std::string> instruction_sets = {};       // [rank], or empty where they are the same
  std::function<std::vector<WorkerStatus>()> statuses;  // what the ranks are doing; may be empty
  bool name_hangs = false;  // what `link` gives says itself what ranks do when a step times out
};

// Who serves what. Pure.
struct RankGroups {
  std::vector<std::vector<Rank>> replicas;  // stage by stage, in the order of the rings
  std::vector<Rank> idle;                   // ranks of the job without a part in the plan
};
RankGroups rank_groups(const Plan& plan, std::int64_t n_ranks);

// Calls `drive` with the plan's replicas, then tells all ranks that this work is over. What `drive`
// throws ends the process; after a step that timed out people hear what every rank was doing.
void drive_ranks(const JobPlan& job, const Workload& workload, const RankLinks& ranks, JobEnd& end,
                 const Drive& drive);

}  // namespace longhaul
