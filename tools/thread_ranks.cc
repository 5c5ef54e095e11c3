// Ranks as threads of one process: for one machine, and to try out what a cluster would do.
#include <fmt/format.h>

#include <deque>
#include <future>
#include <thread>

#include "cluster/comm/host_info.h"
#include "cluster/comm/in_process.h"
#include "tools/launch.h"
#include "tools/rank_duties.h"
#include "tools/weights_flag.h"

namespace longhaul {
namespace {

struct ThreadRank {
  PhaseBoard board;
  std::unique_ptr<Link> coordinator_end;
  std::unique_ptr<WorkerLink> worker_end;
};

std::vector<WorkerStatus> statuses_of(const std::deque<ThreadRank>& ranks,
                                      const std::string& host) {
  std::vector<WorkerStatus> statuses;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    statuses.push_back({.rank = static_cast<std::int64_t>(r),
                        .host = host,
                        .connected = true,
                        .phase = ranks[r].board.read(),
                        .silent_ms = 0});
  }
  return statuses;
}

}  // namespace

bool start_on_threads(const RunOptions& options, std::int64_t n_ranks, const JobStart& job) {
  const std::string host = hostname();
  JobEnd end;
  WeightsShelf shelf(*job.model, asked_weights(options.weights));
  std::promise<JobPlan> planned;
  std::deque<ThreadRank> ranks(static_cast<std::size_t>(n_ranks));
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    LinkPair pair = make_in_memory_link(fmt::format("rank {} on {}", r, host));
    ranks[r].coordinator_end = std::move(pair.coordinator);
    ranks[r].worker_end = std::move(pair.worker);
  }
  const auto hub = make_in_process_hub(static_cast<int>(n_ranks));
  const auto run_rank = [&](std::size_t r) {
    try {
      CommunicatorConfig config;
      config.default_deadline = transfer_deadline(options);
      config.hub = hub;
      config.rank = static_cast<int>(r);
      const auto comm = make_communicator(config);
      serve_rank(*comm, {.options = &options,
                         .model = job.model,
                         .shelf = &shelf,
                         .board = &ranks[r].board,
                         .link = ranks[r].worker_end.get(),
                         .make_plan = job.make_plan,
                         .planned = [&](const JobPlan& plan) { planned.set_value(plan); },
                         .refused = [&](std::exception_ptr why) { planned.set_exception(why); }});
    } catch (...) {
      end.fail(std::current_exception());  // the others may be stuck in a transfer with this one
    }
    ranks[r].worker_end.reset();
  };
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) threads.emplace_back(run_rank, r);
  const JobPlan plan = planned.get_future().get();
  RankLinks links;
  links.hosts.assign(ranks.size(), host);
  links.link = [&](Rank rank) {
    return std::move(ranks[static_cast<std::size_t>(rank.value)].coordinator_end);
  };
  links.statuses = [&] { return statuses_of(ranks, host); };
  try {
    return job.coordinate(plan, links, end);
  } catch (...) {
    end.fail(std::current_exception());
  }
}

}  // namespace longhaul
