// The middle of a run, the same for a file of requests and for one question: the groups of requests
// go through however many ranks and replicas there are.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "coordinator/documents.h"
#include "coordinator/engine.h"
#include "coordinator/requests.h"
#include "tools/job/job.h"
#include "tools/job/run_report.h"
#include "tools/job/run_session.h"
#include "tools/status/job_status.h"

namespace longhaul {

// What is to be done and who hears of it. Everything must outlive run_groups. With several replicas
// the callbacks come from their threads, one at a time.
struct RunWork {
  const RunSession* session = nullptr;
  const JobConfig* config = nullptr;
  const std::vector<RequestGroup>* groups = nullptr;
  const std::vector<Request>* requests = nullptr;
  Progress* progress = nullptr;
  StatusBoard* status = nullptr;        // told of documents, plan and ranks
  std::function<void()> on_start = {};  // the plan is accepted, nothing was answered yet
  EngineCallbacks callbacks;
  std::filesystem::path report;  // what each rank did and held, as JSON; empty: none
  // Of the heads' caches: what they took beside what was predicted is told at the end; none: it is
  // not.
  std::optional<MethodNames> kv_methods = std::nullopt;
  std::filesystem::path save_cluster;  // the cluster with speeds that fit, as TOML; empty: none
  std::optional<Deadline> end;         // of the batch job (time_limit.h)
  bool explains_plan = false;  // the whole plan and the long form of the table, not only summaries
  // Says something to people, in whole lines, beside whatever progress is shown.
  std::function<void(std::string_view)> tell;
};

// Longest documents first, so that replicas end at about the same time; equal ones stay in order.
void sort_longest_first(std::vector<RequestGroup>& groups);

// Blocks until all groups are done or a stop was asked for: returns whether nothing is left. Throws
// what opening and planning throw; failures as JobRanks::run.
bool run_groups(const RunWork& work, JobRanks& ranks);

}  // namespace longhaul
