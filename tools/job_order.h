// What rank 0 tells the ranks of a job to do, as text that is broadcast to them: the plan, and the
// cluster that it was made for, whose speeds decide how keys or queries travel. Every rank must
// decide alike, so numbers travel exactly.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "partition/cluster_spec.h"
#include "partition/plan.h"

namespace longhaul {

struct JobPlan {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const ClusterSpec> cluster;
};

std::string encode_order(const JobPlan& job);
// Throws kCorruptData for what is no order, or one whose plan does not have its hash.
JobPlan decode_order(std::string_view text);

}  // namespace longhaul
