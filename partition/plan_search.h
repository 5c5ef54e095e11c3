// Which layouts make_plan chooses between, and which it takes: replicas, stages and length of
// chunks by predicted time. Internal to partition/. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "partition/make_plan.h"
#include "partition/plan.h"
#include "partition/stage_layout.h"

namespace longhaul {

using ReplicaLayout = std::vector<StageLayout>;

struct Arrangement {
  std::vector<ReplicaLayout> replicas;
  std::int64_t chunk_len = 0;
  // Of the slowest replica with the longest document:
  double reading_s = 0;
  double seconds = 0;  // reading it and answering the questions in flight
};

// The ranks of each replica, ordered as rings go through them.
std::vector<std::vector<Rank>> replica_ranks(const PlanRequest& request, std::int64_t n_replicas);

// The numbers of stages to try, up to `most`: every one up to 8, then steps of about an eighth, and
// `most` itself. A fixed list, so that more memory never passes over what fitted.
std::vector<std::int64_t> stage_counts(const PlanOptions& options, std::int64_t most);

// Replicas of as few stages as fit, but at least `from`; nullopt when nothing fits.
std::optional<std::vector<ReplicaLayout>> layout_that_fits(const PlanRequest& request,
                                                           const StagePlanner& planner,
                                                           std::int64_t n_replicas,
                                                           std::int64_t from = 1);

// Everything of a plan but its replicas.
Plan empty_plan(const PlanRequest& request);

// Turns a layout into a replica; `room` none: as many blocks as there are, for itemising what does
// not fit.
Replica build_replica(const PlanRequest& request, const StagePlanner& planner, const Plan& plan,
                      const ReplicaLayout& layout, std::optional<std::int64_t> room = std::nullopt);

// What make_plan takes; nullopt when nothing fits.
//
// Of all numbers of stages and lengths of chunks those with the least predicted time, but more
// stages only where they are clearly faster, and of lengths that are hardly slower the one nearest
// to the workload's: so plans differ from the usual ones only for a reason. Half of a request's
// tokens count as answer. Replicas are doubled as long as all fit and a document is read hardly
// slower.
std::optional<Arrangement> choose_arrangement(const PlanRequest& request);

}  // namespace longhaul
