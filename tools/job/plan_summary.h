// A plan in a few lines for people: who does what, and what fills the memory. Pure.
#pragma once
#include <string>

#include "model/model_spec.h"
#include "partition/workload.h"
#include "tools/job/job_order.h"

namespace longhaul {

std::string summary(const JobPlan& job, const ModelSpec& spec, const Workload& workload);

}  // namespace longhaul
