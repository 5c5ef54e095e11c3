// How the engine of a replica keeps within its plan. Pure.
#pragma once
#include <cstddef>

#include "coordinator/engine.h"
#include "model/model_spec.h"
#include "partition/memory_model.h"
#include "partition/workload.h"
#include "tools/job/job_order.h"

namespace longhaul {

// `config` as replica `replica` of the plan runs it: the plan's chunks, a command more under way
// than there are stages, and a budget that grows with the memory that the plan leaves free but
// never beyond config's own limit. Where there are several replicas, none hoards documents.
EngineConfig engine_config(EngineConfig config, const ModelSpec& spec, const JobPlan& job,
                           const Workload& workload, std::size_t replica);

// The most that the budget lets a rank's KV caches be, and the free memory that they may take.
std::int64_t kv_limit_bytes(const RankBytes& planned, double kv_scale);

}  // namespace longhaul
