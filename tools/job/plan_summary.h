// A plan in a few lines for people: who does what, and what fills the memory. Pure.
#pragma once
#include <string>
#include <vector>

#include "model/model_spec.h"
#include "partition/workload.h"
#include "tools/job/job_order.h"

namespace longhaul {

// `kv_scales` are those of the replicas' budgets (EngineConfig::kv_scale): what KV caches may be,
// and what is free beside that.
std::string summary(const JobPlan& job, const ModelSpec& spec, const Workload& workload,
                    const std::vector<double>& kv_scales);

}  // namespace longhaul
