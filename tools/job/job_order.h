// What rank 0 tells the ranks of a job to do, as text that is broadcast to them: the plan, the
// cluster that it was made for, whose speeds decide how keys or queries travel, and the threads.
// Every rank must decide alike, so numbers travel exactly.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/device/gpu_memory.h"
#include "partition/cluster_spec.h"
#include "partition/plan.h"

namespace longhaul {

struct JobPlan {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const ClusterSpec> cluster;
  // [ranks] of what ranks on GPUs take at their start (RingPlace::arena); may be empty.
  std::vector<ArenaBytes> arenas = {};
  int n_threads = 0;  // of each rank's kernels; 0: as the rank's JobConfig says
};

std::string encode_order(const JobPlan& job);
// Throws kCorruptData for what is no order, or one whose plan does not have its hash.
JobPlan decode_order(std::string_view text);

}  // namespace longhaul
