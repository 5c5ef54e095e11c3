#include "tools/job/run_groups.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/event_log.h"
#include "base/file.h"
#include "base/log.h"
#include "base/terminal.h"
#include "build_info.h"
#include "partition/explain.h"
#include "partition/memory_model.h"
#include "partition/plan_json.h"
#include "tools/job/alone_limits.h"
#include "tools/job/check_in.h"
#include "tools/job/draft_session.h"
#include "tools/job/engine_config.h"
#include "tools/job/engine_team.h"
#include "tools/job/memory_probe.h"
#include "tools/job/plan_job.h"
#include "tools/job/plan_summary.h"
#include "tools/job/run_forecast.h"
#include "tools/job/run_report.h"
#include "tools/job/time_limit.h"
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
    outcomes[r].host = run.hosts[r];
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

std::string document_name(const RequestGroup& group) {
  if (group.documents.empty()) return "";
  const std::filesystem::path& path = group.documents.front().path;
  const std::string first = path.empty() ? "standard input" : path.filename().string();
  const std::size_t n_more = group.documents.size() - 1;
  return n_more == 0 ? first : fmt::format("{} and {} more", first, n_more);
}

// What status pages show of the plan. One rank alone has the limit that its caches are kept below.
void tell_status(const RunWork& work, const JobRun& run, const std::vector<EngineConfig>& engines) {
  std::vector<RankPlanned> planned;
  for (const RankOutcome& outcome : outcomes_of(work, run, engines, {})) {
    planned.push_back(
        {.host = outcome.host, .bytes = outcome.planned, .kv_limit_bytes = outcome.kv_limit_bytes});
  }
  if (run.job == nullptr) {
    const std::size_t limit = engines.front().scheduler.budget.limit_bytes;
    if (limit != KvBudget::kNoLimit)
      planned.front().kv_limit_bytes = static_cast<std::int64_t>(limit);
    work.status->set_plan("", std::move(planned), 0);
    return;
  }
  const LinkSpec& link = run.job->cluster->link;
  const bool is_one_host =
      std::all_of(run.hosts.begin(), run.hosts.end(),
                  [&](const std::string& host) { return host == run.hosts.front(); });
  work.status->set_plan(plan_hash(*run.job->plan), std::move(planned),
                        is_one_host ? link.within_host_gb_per_s : link.between_hosts_gb_per_s);
}

// The run is looked at only while it lives; what was seen last stays.
class StatusWatch {
 public:
  StatusWatch(const RunWork& work, const JobRun& run) : board_(*work.status) {
    board_.watch(work.progress);
    board_.watch_ranks(run.statuses);
    board_.enter("running");
  }
  ~StatusWatch() {
    board_.watch_ranks(nullptr);
    board_.watch(nullptr);
    board_.enter("ended");
  }
  StatusWatch(const StatusWatch&) = delete;
  StatusWatch& operator=(const StatusWatch&) = delete;

 private:
  StatusBoard& board_;
};

void log_plan(const RunWork& work, const JobRun& run) {
  if (!keeps_events()) return;
  JsonObject event{{"model", work.session->model->path().string()},
                   {"documents", work.groups->size()},
                   {"requests", work.requests->size()},
                   {"fingerprint", work.session->system_fingerprint}};
  if (run.job != nullptr) event.emplace_back("plan", plan_to_json(*run.job->plan));
  log_event("plan", std::move(event));
}

void print_plan(const RunWork& work, const JobRun& run, const std::vector<EngineConfig>& engines) {
  if (run.job == nullptr) {
    if (work.explains_plan) work.tell("  one rank alone: there is no plan to print\n");
    return;
  }
  std::vector<double> kv_scales;
  for (const EngineConfig& engine : engines) kv_scales.push_back(engine.kv_scale);
  const ModelSpec& spec = work.session->spec();
  work.tell(work.explains_plan ? explain(*run.job->plan, spec, *run.job->cluster, run.workload)
                               : summary(*run.job, spec, run.workload, kv_scales));
  const std::string sets = explain_instruction_sets(run.instruction_sets);
  if (!sets.empty()) work.tell(fmt::format("  {}\n", sets));
}

// What the planner counts for this workload, of all ranks together.
RankBytes predicted_bytes(const RunWork& work, const JobRun& run, const Workload& workload) {
  const ModelSpec& spec = work.session->spec();
  if (run.job == nullptr) return bytes_of_one_rank(*work.session, workload);
  RankBytes sum;
  const Workload planned = as_planned(run.workload, *run.job->plan);
  for (const RankBytes& bytes : memory_of(*run.job->plan, spec, *run.job->cluster, planned)) {
    sum.kv_retrieval += bytes.kv_retrieval;
    sum.kv_streaming += bytes.kv_streaming;
  }
  return sum;
}

std::string kv_report(const RunWork& work, const JobRun& run, const Workload& workload,
                      const std::vector<RankOutcome>& outcomes, std::size_t width) {
  const RunSession& session = *work.session;
  return kv_table(kv_of_methods({.heads = session.heads.table,
                                 .names = *work.kv_methods,
                                 .workload = workload,
                                 .kv = workload.kv(session.spec()),
                                 .predicted = predicted_bytes(work, run, workload),
                                 .ranks = outcomes}),
                  width);
}

// What cannot be read in time is not begun where it could not be saved, and the run stops before
// its time is over.
void keep_to_time(const RunWork& work, std::vector<EngineConfig>& engines,
                  EngineCallbacks& callbacks) {
  if (!work.end) return;
  const TimeLimit limit(Clock::now(), *work.end);
  callbacks.stop_requested = [limit, asked = callbacks.stop_requested] {
    return asked() || limit.is_over(Clock::now());
  };
  for (EngineConfig& engine : engines) {
    if (engine.scheduler.checkpoint) continue;
    engine.may_begin = [limit, &work,
                        lane = engine.lane](const std::vector<std::int64_t>& document_lengths) {
      const double seconds = work.progress->seconds_until_read(document_lengths, lane);
      if (limit.allows(Clock::now(), seconds)) return true;
      work.tell(
          fmt::format("longhaul: a document of {} tokens takes {:.0f} s, and the job's time "
                      "is over before: it is left for the next start\n",
                      std::reduce(document_lengths.begin(), document_lengths.end()), seconds));
      return false;
    };
  }
}

// Hears of every step from now on; none where nothing was planned.
std::shared_ptr<RunForecast> forecast_of(const RunWork& work, const JobRun& run) {
  if (run.job == nullptr) return nullptr;
  auto forecast = std::make_shared<RunForecast>(*run.job, work.session->spec(), run.workload);
  work.progress->hand_steps_to([forecast](const StepOfRun& step) { forecast->add(step); });
  return forecast;
}

void tell_forecast(const RunWork& work, const RunForecast& forecast) {
  work.progress->hand_steps_to({});  // what it refers to ends with the run
  if (const std::string text = forecast.text(); !text.empty())
    work.tell(fmt::format("  {}\n", text));
  if (work.save_cluster.empty()) return;
  replace_file(work.save_cluster,
               fmt::format("# As a run of longhaul {} found it: speeds fit its steps ({} tokens "
                           "read, {} decoded).\n{}",
                           build_info::kVersion, forecast.prefill().n_tokens,
                           forecast.decode().n_tokens, cluster_to_toml(forecast.calibrated())));
}

// What each rank held, and whatever else was asked for.
void tell_outcomes(const RunWork& work, const JobRun& run, const Workload& workload,
                   const std::vector<RankOutcome>& outcomes) {
  const std::size_t width = terminal_columns(STDERR_FILENO).value_or(kAnyWidth);
  if (run.job != nullptr || work.explains_plan) {
    work.tell(
        report_table(outcomes, work.explains_plan ? ReportForm::kLong : ReportForm::kShort, width));
  }
  if (work.kv_methods) work.tell(kv_report(work, run, workload, outcomes, width));
  if (!work.report.empty()) replace_file(work.report, to_text(report_json(outcomes)) + "\n");
}

// A document that does not come must not hold the end of a run, whatever it ends for.
PrepareGroup prepare_groups_of(const RunWork& work) {
  return [&work](std::size_t i, const std::function<bool()>& is_over) {
    const RunSession& session = *work.session;
    PreparationConfig preparation = session.preparation;
    preparation.texts.stop_requested = [&is_over,
                                        asked = session.preparation.texts.stop_requested] {
      return is_over() || (asked && asked());
    };
    return prepare((*work.groups)[i], *work.requests, session.tokenizer, preparation);
  };
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
  const std::int64_t draft_bytes = session.draft ? session.draft->n_bytes : 0;
  std::optional<AloneLimits> alone;
  if (!ranks.plans)
    alone = limits_of_one_rank(session, *work.config, workload, free_memory_bytes() - draft_bytes);
  bool complete = false;
  std::vector<std::string> names;
  for (const RequestGroup& group : *work.groups) names.push_back(document_name(group));
  work.status->set_documents(std::move(names));
  ranks.run({.model = session.weights.get(),
             .heads = session.heads.table,
             .profile = session.heads.profile,
             .workload = workload,
             .leader_bytes = draft_bytes},
            [&](JobRun& run) {
              GroupFeed feed(work.groups->size(), prepare_groups_of(work));
              std::vector<EngineConfig> engines = engine_configs(work, run, alone);
              const auto draft = start_draft(session.draft, *work.config, engines);
              EngineCallbacks callbacks = work.callbacks;
              keep_to_time(work, engines, callbacks);
              const auto forecast = forecast_of(work, run);
              print_plan(work, run, engines);
              tell_status(work, run, engines);
              const StatusWatch watch(work, run);
              log_plan(work, run);
              LONGHAUL_LOG(kInfo, kRun, "event=started ranks={} plan={} documents={} requests={}",
                           ranks.n_ranks, run.job == nullptr ? "none" : plan_hash(*run.job->plan),
                           work.groups->size(), work.requests->size());
              if (work.on_start) work.on_start();
              const TeamResult result = run_engines({.configs = engines,
                                                     .links = run.replicas,
                                                     .tokenizer = &session.tokenizer,
                                                     .feed = &feed,
                                                     .progress = work.progress,
                                                     .callbacks = std::move(callbacks),
                                                     .writing = run.writing,
                                                     .fail = run.fail});
              complete = result.complete;
              LONGHAUL_LOG(kInfo, kRun, "event=ended complete={}", complete);
              if (forecast) tell_forecast(work, *forecast);
              log_event("ended", {{"complete", complete}});
              tell_outcomes(work, run, workload, outcomes_of(work, run, engines, result.reports));
            });
  return complete;
}

}  // namespace longhaul
