#include "tools/job/run_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/log.h"
#include "partition/explain.h"
#include "partition/memory_model.h"
#include "partition/plan_json.h"
#include "tools/job/alone_limits.h"
#include "tools/job/check_in.h"
#include "tools/job/engine_config.h"
#include "tools/job/engine_team.h"
#include "tools/job/memory_probe.h"
#include "tools/job/plan_summary.h"
#include "tools/job/run_report.h"
#include "tools/job/workload_estimate.h"

namespace longhaul {
namespace {

std::vector<EngineConfig> engine_configs(const RunWork& work, const JobRun& run,
                                         const std::optional<AloneLimits>& alone) {
  if (run.job == nullptr) {
    EngineConfig engine = work.session->engine;
    engine.scheduler.chunk_len = engine.scheduler.budget.chunk_len = alone->chunk_len;
    std::size_t& limit = engine.scheduler.budget.limit_bytes;
    limit = std::min(limit, alone->kv_bytes);
    return {engine};
  }
  std::vector<EngineConfig> configs;
  for (std::size_t r = 0; r < run.replicas.size(); ++r) {
    configs.push_back(
        engine_config(work.session->engine, work.session->spec(), *run.job, run.workload, r));
  }
  return configs;
}

// Every rank of the job, those without a part in the plan too.
std::vector<RankOutcome> outcomes_of(const RunWork& work, const JobRun& run,
                                     const std::vector<EngineConfig>& engines,
                                     const std::vector<RankReport>& reports) {
  std::vector<RankOutcome> outcomes(run.hosts.size());
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (run.job != nullptr) outcomes[r].host = run.hosts[r];
    outcomes[r].report.rank = {static_cast<std::int64_t>(r)};
  }
  for (const RankReport& report : reports)
    outcomes.at(static_cast<std::size_t>(report.rank.value)).report = report;
  if (run.job == nullptr) return outcomes;
  const auto bytes =
      memory_of(*run.job->plan, work.session->spec(), *run.job->cluster, run.workload);
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    outcomes[r].planned = bytes[Rank{static_cast<std::int64_t>(r)}];
  }
  const auto& replicas = run.job->plan->replicas;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    for (const Stage& stage : replicas[i].stages) {
      for (const Rank rank : stage.ring) {
        RankOutcome& outcome = outcomes[static_cast<std::size_t>(rank.value)];
        outcome.kv_limit_bytes = kv_limit_bytes(outcome.planned, engines[i].kv_scale);
      }
    }
  }
  return outcomes;
}

void print_plan(const RunWork& work, const JobRun& run, const std::vector<EngineConfig>& engines) {
  std::vector<double> kv_scales;
  for (const EngineConfig& engine : engines) kv_scales.push_back(engine.kv_scale);
  const ModelSpec& spec = work.session->spec();
  work.tell(work.explains_plan ? explain(*run.job->plan, spec, *run.job->cluster, run.workload)
                               : summary(*run.job, spec, run.workload, kv_scales));
  const std::string sets = explain_instruction_sets(run.instruction_sets);
  if (!sets.empty()) work.tell(fmt::format("  {}\n", sets));
}

}  // namespace

void sort_longest_first(std::vector<RequestGroup>& groups) {
  std::stable_sort(groups.begin(), groups.end(), [](const RequestGroup& a, const RequestGroup& b) {
    return a.n_bytes > b.n_bytes;
  });
}

bool run_groups(const RunWork& work, JobRanks& ranks) {
  const RunSession& session = *work.session;
  const Workload workload =
      estimate_workload(session, *work.config, *work.groups, *work.requests, ranks.n_ranks);
  std::optional<AloneLimits> alone;
  if (!ranks.plans)
    alone = limits_of_one_rank(session, *work.config, workload, free_memory_bytes());
  bool complete = false;
  ranks.run(
      {.model = session.weights.get(),
       .heads = session.heads.table,
       .profile = session.heads.profile,
       .workload = workload},
      [&](JobRun& run) {
        GroupFeed feed(work.groups->size(), [&](std::size_t i) {
          return prepare((*work.groups)[i], *work.requests, session.tokenizer, session.preparation);
        });
        const std::vector<EngineConfig> engines = engine_configs(work, run, alone);
        if (run.job != nullptr) print_plan(work, run, engines);
        LONGHAUL_LOG(kInfo, kRun, "event=started ranks={} plan={} documents={} requests={}",
                     ranks.n_ranks, run.job == nullptr ? "none" : plan_hash(*run.job->plan),
                     work.groups->size(), work.requests->size());
        const TeamResult result = run_engines({.configs = engines,
                                               .links = run.replicas,
                                               .tokenizer = &session.tokenizer,
                                               .feed = &feed,
                                               .progress = work.progress,
                                               .callbacks = work.callbacks,
                                               .writing = run.writing,
                                               .fail = run.fail});
        complete = result.complete;
        LONGHAUL_LOG(kInfo, kRun, "event=ended complete={}", complete);
        const auto outcomes = outcomes_of(work, run, engines, result.reports);
        if (run.job != nullptr) {
          work.tell(
              report_table(outcomes, work.explains_plan ? ReportForm::kLong : ReportForm::kShort));
        }
        if (!work.report.empty()) replace_file(work.report, to_text(report_json(outcomes)) + "\n");
      });
  return complete;
}

}  // namespace longhaul
