// The plan of a run: what the requests ask of the ranks, and how the ranks share it. Made once, on
// rank 0, when the cluster is known and before any weights are read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "coordinator/documents.h"
#include "coordinator/requests.h"
#include "partition/cluster_spec.h"
#include "partition/workload.h"
#include "tools/job_order.h"
#include "tools/run_session.h"

namespace longhaul {

// A TOML file of ranks. Throws kCorruptData for what is none.
ClusterSpec read_cluster(const std::filesystem::path& file);
// A plan as JSON. Throws kCorruptData for what is none.
Plan read_plan(const std::filesystem::path& file);

// What the plan must be able to carry. Tokens are estimated from bytes: samples of the longest
// document and the longest prompt are tokenised, and a tenth is added. What turns out longer is
// refused request by request, by the scheduler's budget. Reads the longest document's samples.
Workload estimate_workload(const RunSession& session, const RunOptions& options,
                           const std::vector<RequestGroup>& groups,
                           const std::vector<Request>& requests, std::int64_t n_ranks);

// The same with what a plan chooses itself: its chunks and blocks.
Workload as_planned(Workload workload, const Plan& plan);

// The plan of --plan, or one made for `found` (or for --cluster); where nobody asked for a length
// of chunks, they become shorter until it fits. Throws kInvalidArgument for plans and cluster files
// that are not for this run, and kOutOfMemory with everything itemised when it does not fit.
JobPlan plan_job(const RunSession& session, const RunOptions& options, const Workload& workload,
                 const ClusterSpec& found);

// How an engine of replica `replica` keeps within the plan: chunks, commands ahead, and a budget
// that grows with the memory that the plan leaves free.
EngineConfig engine_config(const RunSession& session, const JobPlan& job, const Workload& workload,
                           std::size_t replica);

// A few lines for people: who does what, and what fills the memory.
std::string summary(const JobPlan& job, const ModelSpec& spec, const Workload& workload);

}  // namespace longhaul
