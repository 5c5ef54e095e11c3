// States what makes a plan right, each invariant on its own, and tests a plan against it. Shares no
// code with the planner beyond the memory model and the rule of homes. Pure.
#pragma once
#include <string>
#include <vector>

#include "model/model_spec.h"
#include "partition/cluster_spec.h"
#include "partition/plan.h"
#include "partition/workload.h"

namespace longhaul {

// What is wrong with the plan, one sentence each; empty for a good one. At most 50 are listed.
//
//   structure  replicas and stages exist; every layer lies in exactly one stage of each replica, in
//              order; every rank is in at most one ring, once, and in the cluster
//   tokens     a share for each rank of the ring, none negative, together the whole chunk
//   heads      a home for each (layer, KV head); homes are different ranks of the stage's ring with
//              positive weights, so that each block has exactly one; one home for a windowed head
//   columns    each column of the FFN in exactly one slice of each stage; each row of the output
//              head in exactly one slice of the last stage, none elsewhere
//   format     KV format, chunk and heads' table are those of the model and the workload
//   memory     no rank holds more than its memory less headroom, bytes itemised
std::vector<std::string> check_plan(const Plan& plan, const ModelSpec& spec,
                                    const ClusterSpec& cluster, const Workload& workload);

// The same in two halves, for whom it matters which: everything but memory; and memory, of a plan
// that is right in everything else.
std::vector<std::string> check_all_but_memory(const Plan& plan, const ModelSpec& spec,
                                              const ClusterSpec& cluster, const Workload& workload);
std::vector<std::string> check_memory(const Plan& plan, const ModelSpec& spec,
                                      const ClusterSpec& cluster, const Workload& workload);

// The structural part alone, without a cluster's memory: for a plan read from a file or a message.
std::vector<std::string> check_structure(const Plan& plan, const ModelSpec& spec,
                                         std::int64_t n_ranks);

}  // namespace longhaul
