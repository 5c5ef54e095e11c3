#include "tools/run_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "base/file.h"
#include "cluster/comm/mpi_environment.h"
#include "cluster/wire/group_link.h"
#include "partition/explain.h"
#include "tools/exit_status.h"
#include "tools/job_plan.h"
#include "tools/local_replica.h"
#include "tools/run_report.h"

namespace longhaul {
namespace {

constexpr auto kReportDeadline = std::chrono::seconds(60);

GroupFeed feed_of(const RunWork& work) {
  return GroupFeed(work.groups->size(), [&work](std::size_t i) {
    return prepare((*work.groups)[i], *work.requests, work.session->tokenizer,
                   work.session->preparation);
  });
}

std::vector<RankReport> ask_for_reports(Link& link) {
  link.send(ReportRank{});
  const StepResult result = link.receive(deadline_in(kReportDeadline));
  if (const auto* done = std::get_if<StepDone>(&result)) return done->reports;
  throw Error(ErrorCode::kInternal, std::get<StepFailed>(result).message);
}

void write_report(const RunOptions& options, const std::vector<RankOutcome>& ranks) {
  if (!options.report.empty()) replace_file(options.report, to_text(report_json(ranks)) + "\n");
}

// The coordinator of a job of several ranks.
class Coordinator {
 public:
  Coordinator(const RunWork& work, const Workload& workload, const JobPlan& job,
              const RankLinks& ranks, JobEnd& end)
      : work_(work),
        workload_(workload),
        job_(job),
        ranks_(ranks),
        end_(end),
        feed_(feed_of(work)),
        reports_(job.cluster->ranks.size()) {}

  bool run() {
    const std::size_t n_replicas = job_.plan->replicas.size();
    work_.progress->set_lanes(n_replicas);
    make_links();
    {
      std::vector<std::jthread> engines;
      for (std::size_t r = 0; r < n_replicas; ++r)
        engines.emplace_back([this, r] { run_engine(r); });
    }
    for (const auto& link : idle_) shut_down(*link);
    for (const auto& link : replicas_) shut_down(*link);
    report();
    return complete_;
  }

 private:
  void make_links() {
    std::vector<bool> has_part(job_.cluster->ranks.size(), false);
    for (const Replica& replica : job_.plan->replicas) {
      std::vector<GroupLink::Member> members;
      for (const Stage& stage : replica.stages) {
        for (const Rank rank : stage.ring) {
          const auto at = static_cast<std::size_t>(rank.value);
          has_part[at] = true;
          members.push_back({{rank, ranks_.hosts[at]}, ranks_.link(rank)});
        }
      }
      replicas_.push_back(std::make_unique<GroupLink>(std::move(members)));
    }
    for (std::size_t r = 0; r < has_part.size(); ++r) {
      if (!has_part[r]) idle_.push_back(ranks_.link(Rank{static_cast<std::int64_t>(r)}));
    }
  }

  // On a thread of its own for each replica. A failure of one ends the job: its requests would be
  // left.
  void run_engine(std::size_t replica) {
    try {
      Engine engine(engine_config(*work_.session, job_, workload_, replica),
                    work_.session->tokenizer, *replicas_[replica], feed_, *work_.progress,
                    callbacks());
      const bool complete = engine.run();
      const auto reports = ask_for_reports(*replicas_[replica]);
      const std::lock_guard lock(end_.writing());
      complete_ = complete_ && complete;
      for (const RankReport& report : reports)
        reports_[static_cast<std::size_t>(report.rank)] = report;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kTimeout && ranks_.statuses)
        end_.fail(
            std::make_exception_ptr(Error(ErrorCode::kTimeout, describe_hang(ranks_.statuses()))));
      end_.fail(std::current_exception());
    } catch (...) {
      end_.fail(std::current_exception());
    }
  }

  // One at a time, and never cut short by the end of the process.
  EngineCallbacks callbacks() {
    EngineCallbacks locked = work_.callbacks;
    locked.on_done = [this](const PreparedRequest& prepared, const Answer& answer) {
      const std::lock_guard lock(end_.writing());
      work_.callbacks.on_done(prepared, answer);
    };
    locked.on_failed = [this](const FailedRequest& failure) {
      const std::lock_guard lock(end_.writing());
      work_.callbacks.on_failed(failure);
    };
    if (work_.callbacks.on_text) {
      locked.on_text = [this](std::size_t request, std::string_view text) {
        const std::lock_guard lock(end_.writing());
        work_.callbacks.on_text(request, text);
      };
    }
    locked.on_progress = [this](const Progress& progress) {
      const std::lock_guard lock(end_.writing());
      work_.callbacks.on_progress(progress);
    };
    return locked;
  }

  static void shut_down(Link& link) {
    link.send(Shutdown{});
    static_cast<void>(link.receive(deadline_in(kReportDeadline)));
  }

  void report() {
    const auto bytes = memory_of(*job_.plan, work_.session->model.config().spec, *job_.cluster,
                                 as_planned(workload_, *job_.plan));
    std::vector<RankOutcome> outcomes;
    for (std::size_t r = 0; r < reports_.size(); ++r) {
      reports_[r].rank = static_cast<std::int64_t>(r);
      outcomes.push_back({ranks_.hosts[r], reports_[r], bytes[r]});
    }
    fmt::print(stderr, "{}", report_table(outcomes));
    write_report(*work_.options, outcomes);
  }

  const RunWork& work_;
  const Workload& workload_;
  const JobPlan& job_;
  const RankLinks& ranks_;
  JobEnd& end_;
  GroupFeed feed_;
  std::vector<std::unique_ptr<Link>> replicas_;
  std::vector<std::unique_ptr<Link>> idle_;  // to ranks without a part in the plan
  std::vector<RankReport> reports_;          // [rank]; guarded by end_.writing()
  bool complete_ = true;                     // guarded by end_.writing()
};

bool run_ranks(const RunWork& work, const Launch& launch) {
  const RunSession& session = *work.session;
  const ModelSpec& spec = session.model.config().spec;
  const Workload workload =
      estimate_workload(session, *work.options, *work.groups, *work.requests, launch.n_ranks);
  JobStart start;
  start.model = &session.model;
  start.make_plan = [&](const ClusterSpec& found) {
    return plan_job(session, *work.options, workload, found);
  };
  start.coordinate = [&](const JobPlan& job, const RankLinks& ranks, JobEnd& end) {
    fmt::print(stderr, "{}",
               work.options->verbose
                   ? explain(*job.plan, spec, *job.cluster, as_planned(workload, *job.plan))
                   : summary(job, spec, workload));
    return Coordinator(work, workload, job, ranks, end).run();
  };
  return launch.start(start);
}

// One rank, no plan.
bool run_alone(const RunWork& work) {
  GroupFeed feed = feed_of(work);
  LocalReplica replica(worker_config(*work.session, *work.options));
  Engine engine(work.session->engine, work.session->tokenizer, replica.link(), feed, *work.progress,
                work.callbacks);
  try {
    const bool complete = engine.run();
    if (!work.options->report.empty())
      write_report(*work.options, {{"", ask_for_reports(replica.link()).at(0), {}}});
    return complete;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    // The worker's thread hangs and cannot be joined; what is done is on disk.
    MpiEnvironment::exit_now(report_failure(std::current_exception(), /*of_ranks=*/true));
  }
}

}  // namespace

void sort_longest_first(std::vector<RequestGroup>& groups) {
  std::stable_sort(groups.begin(), groups.end(), [](const RequestGroup& a, const RequestGroup& b) {
    return a.n_bytes > b.n_bytes;
  });
}

bool run_groups(const RunWork& work, const Launch& launch) {
  return launch.start ? run_ranks(work, launch) : run_alone(work);
}

}  // namespace longhaul
