// A plan in words and numbers, for people: what runs where, what fills the memory, how long it
// takes, what travels. Lines of at most 100 columns. Pure.
#pragma once
#include <string>

#include "model/model_spec.h"
#include "partition/cluster_spec.h"
#include "partition/make_plan.h"
#include "partition/plan.h"
#include "partition/workload.h"

namespace longhaul {

std::string explain(const Plan& plan, const ModelSpec& spec, const ClusterSpec& cluster,
                    const Workload& workload);

// How fast hosts reach each other, in a line or two; empty where there is one.
std::string explain_links(const ClusterSpec& cluster);

// Why there is no plan: bytes per rank by kind, and the changes that would make one.
std::string explain(const NotFitting& refusal, const ClusterSpec& cluster);

}  // namespace longhaul
