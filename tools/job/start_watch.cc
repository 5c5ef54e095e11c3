#include "tools/job/start_watch.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "base/print_stderr.h"
#include "cluster/comm/host_info.h"
#include "cluster/comm/local_ranks.h"
#include "cluster/comm/mpi_environment.h"
#include "tools/job/exit_status.h"

namespace longhaul {
namespace {

// Whether this process is the first of its host that can speak.
bool speaks(const std::vector<LocalRank>& ranks) {
  const auto first = std::find_if(ranks.begin(), ranks.end(),
                                  [](const LocalRank& rank) { return !rank.is_stopped(); });
  return first == ranks.end() || first->process == ::getpid();
}

void say_who_is_there(std::chrono::milliseconds limit) {
  const std::vector<LocalRank> ranks = ranks_on_this_host();
  if (!speaks(ranks)) return;
  print_stderr(
      "longhaul: error: the ranks have not come together within {:.3g} s (--start-timeout); {}; "
      "run the same command again\n",
      static_cast<double>(limit.count()) / 1e3,
      describe_start(hostname(), ranks, ranks_expected_here()));
}

}  // namespace

StartWatch::StartWatch(std::chrono::milliseconds limit)
    : thread_([this, limit] {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, limit, [this] { return is_over_; })) return;
        try {
          say_who_is_there(limit);
        } catch (const std::exception&) {  // no memory or no /proc is left to say it
        }
        MpiEnvironment::exit_now(kExitStopped);
      }) {}

void StartWatch::over() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace longhaul
