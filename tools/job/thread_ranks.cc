// Ranks as threads of one process: for one machine, and to try out what a cluster would do.
#include <fmt/format.h>

#include <deque>
#include <future>
#include <thread>

#include "base/event_log.h"
#include "cluster/comm/host_info.h"
#include "cluster/comm/in_process.h"
#include "tools/job/deadlines.h"
#include "tools/job/job_end.h"
#include "tools/job/launch.h"
#include "tools/job/plan_job.h"
#include "tools/job/rank_links.h"
#include "tools/job/rank_server.h"

namespace longhaul {
namespace {

struct ThreadRank {
  PhaseBoard board;
  ReportBoard reports;
  std::unique_ptr<Communicator> comm;
  std::unique_ptr<RankServer> server;
  // Of the work under way.
  std::unique_ptr<Link> coordinator_end;
  std::unique_ptr<WorkerLink> worker_end;
};

class ThreadRanks {
 public:
  ThreadRanks(const JobConfig& config, JobEnd& end, std::int64_t n_ranks)
      : config_(config), host_(hostname()), end_(end), ranks_(static_cast<std::size_t>(n_ranks)) {
    const auto hub = make_in_process_hub(static_cast<int>(n_ranks));
    on_each_rank([&](std::size_t r) {
      CommunicatorConfig comm;
      comm.default_deadline = transfer_deadline(config_);
      comm.hub = hub;
      comm.rank = static_cast<int>(r);
      ranks_[r].comm = make_communicator(comm);
      ranks_[r].server = std::make_unique<RankServer>(*ranks_[r].comm, config_, ranks_[r].board,
                                                      &ranks_[r].reports);
    });
  }

  void run(const JobWork& work, const Drive& drive);
  void work_together(ModelSource& model, const Task& task, const std::string& order) {
    on_each_rank([&](std::size_t r) { ranks_[r].server->work_together(model, task, order); });
  }
  ClusterSpec find_cluster(ModelSource& model) {
    on_each_rank([&](std::size_t r) { ranks_[r].server->find_cluster(model); });
    return ranks_.front().server->find_cluster(model);
  }

 private:
  // Calls it on a thread for each rank. A failure of one ends the job: the others may be stuck in a
  // transfer with it.
  std::vector<std::jthread> start_on_each_rank(std::function<void(std::size_t)> work);
  void on_each_rank(std::function<void(std::size_t)> work) {
    start_on_each_rank(std::move(work));  // and joins
  }
  std::vector<WorkerStatus> statuses();

  const JobConfig& config_;
  std::string host_;
  JobEnd& end_;
  std::deque<ThreadRank> ranks_;
};

std::vector<std::jthread> ThreadRanks::start_on_each_rank(std::function<void(std::size_t)> work) {
  const auto shared = std::make_shared<const std::function<void(std::size_t)>>(std::move(work));
  std::vector<std::jthread> threads;
  const auto start = [&](std::size_t r) {
    threads.emplace_back([this, shared, r] {
      try {
        (*shared)(r);
      } catch (...) {
        end_.fail(std::current_exception());
      }
    });
  };
  try {
    for (std::size_t r = 0; r < ranks_.size(); ++r) start(r);
  } catch (...) {  // no more threads: those that run wait for the others
    end_.fail(std::current_exception());
  }
  return threads;
}

std::vector<WorkerStatus> ThreadRanks::statuses() {
  std::vector<WorkerStatus> statuses;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    statuses.push_back({.rank = {static_cast<std::int64_t>(r)},
                        .host = host_,
                        .connected = true,
                        .phase = ranks_[r].board.read(),
                        .silent_ms = 0,
                        .report = ranks_[r].reports.newest()});
  }
  return statuses;
}

void ThreadRanks::run(const JobWork& work, const Drive& drive) {
  std::promise<JobPlan> planned;
  const PlanMaker maker{
      .make_plan = [&](const ClusterSpec& found) { return plan_job(config_, work, found); },
      .planned = [&](const JobPlan& plan) { planned.set_value(plan); },
      .refused = [&](std::exception_ptr why) { planned.set_exception(why); }};
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    LinkPair pair = make_in_memory_link(fmt::format("rank {} on {}", r, host_));
    ranks_[r].coordinator_end = std::move(pair.coordinator);
    ranks_[r].worker_end = std::move(pair.worker);
  }
  const std::vector<std::jthread> threads = start_on_each_rank([&](std::size_t r) {
    ranks_[r].server->serve(*work.model, *ranks_[r].worker_end, maker);
    ranks_[r].worker_end.reset();
  });
  const JobPlan plan = planned.get_future().get();
  RankLinks links;
  links.hosts.assign(ranks_.size(), host_);
  links.link = [&](Rank rank) {
    return std::move(ranks_[static_cast<std::size_t>(rank.value)].coordinator_end);
  };
  links.statuses = [this] { return statuses(); };
  drive_ranks(plan, work.workload, links, end_, drive);
}

}  // namespace

int run_on_threads(const JobConfig& config, JobEnd& end, std::int64_t n_ranks, const Lead& lead,
                   const Task& task) {
  set_event_rank(0, hostname());
  ThreadRanks threads(config, end, n_ranks);
  JobRanks ranks;
  ranks.n_ranks = n_ranks;
  ranks.plans = true;
  ranks.run = [&](const JobWork& work, const Drive& drive) { threads.run(work, drive); };
  ranks.find_cluster = [&](ModelSource& model) { return threads.find_cluster(model); };
  ranks.together = [&](ModelSource& model, const std::string& order) {
    threads.work_together(model, task, order);
  };
  return lead(ranks);
}

}  // namespace longhaul
