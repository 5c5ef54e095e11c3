// One rank, alone: a worker on a thread of its own behind the in-memory link, without a plan.
#include <fmt/format.h>

#include <string>

#include "base/event_log.h"
#include "base/print_stderr.h"
#include "cluster/comm/host_info.h"
#include "cluster/comm/in_process.h"
#include "kernels/cpu/threads.h"
#include "tools/job/job_end.h"
#include "tools/job/launch.h"
#include "tools/job/local_replica.h"
#include "tools/job/rank_server.h"

namespace longhaul {
namespace {

WorkerConfig worker_config(const JobConfig& config, const JobWork& work) {
  WorkerConfig worker;
  worker.device = chosen_device(config.device);
  worker.weights = work.model->all_layers(worker.device);
  worker.heads = work.heads;
  if (work.heads.needs_token_classes()) worker.token_classes = work.model->token_classes();
  worker.k_type = work.workload.k_type;
  worker.v_type = work.workload.v_type;
  worker.block_size = work.workload.block_size;
  worker.cache_limit_bytes = config.kv_limit_bytes;
  worker.reproducible = work.workload.reproducible;
  worker.n_threads = work.n_threads > 0 ? work.n_threads : config.n_threads;
  worker.shares_cores = !config.draft_model.empty();
  return worker;
}

void run(const JobConfig& config, JobEnd& end, const JobWork& work, const Drive& drive) {
  PhaseBoard board;
  ReportBoard reports;
  WorkerConfig worker = worker_config(config, work);
  worker.board = &board;
  worker.reports = &reports;
  LocalReplica replica(worker);
  JobRun alone{.job = nullptr,
               .workload = work.workload,
               .replicas = {&replica.link()},
               .hosts = {hostname()},
               .statuses =
                   [&] {
                     return std::vector{WorkerStatus{.rank = {0},
                                                     .host = hostname(),
                                                     .connected = true,
                                                     .phase = board.read(),
                                                     .report = reports.newest()}};
                   },
               .writing = &end.writing(),
               .fail = [&](std::exception_ptr why) { end.fail(why); }};
  try {
    drive(alone);
  } catch (const Error& error) {
    // A worker's thread that hangs cannot be joined; what is done is on disk.
    if (error.code() == ErrorCode::kTimeout) end.fail(std::current_exception());
    throw;
  }
}

// A script that starts any number of ranks may start one.
void warn_of_ring_flags(const JobConfig& config) {
  const auto warn = [](bool is_given, const std::string& what) {
    if (is_given) print_stderr("longhaul: warning: {}: one rank alone passes nothing on\n", what);
  };
  const JobConfig usual;
  warn(!config.trace.empty(), fmt::format("--trace {} is not written", config.trace.string()));
  warn(config.history != usual.history, "--history has no effect");
  warn(config.gpu_transfers != usual.gpu_transfers, "--gpu-transfers has no effect");
  warn(config.decode_balance != usual.decode_balance, "--decode-balance has no effect");
}

}  // namespace

int run_alone(const JobConfig& config, JobEnd& end, const Lead& lead, const Task& task) {
  set_event_rank(0, hostname());
  warn_of_ring_flags(config);
  std::optional<ClusterSpec> found;
  JobRanks ranks;
  ranks.run = [&](const JobWork& work, const Drive& drive) { run(config, end, work, drive); };
  ranks.find_cluster = [&](ModelSource& model) {
    if (!found) {
      const auto comm = make_communicator({.hub = make_in_process_hub(1)});
      PhaseBoard board;
      found = RankServer(*comm, config, board).find_cluster(model);
    }
    return *found;
  };
  ranks.together = [&](ModelSource& model, const std::string& order) {
    const auto comm = make_communicator({.hub = make_in_process_hub(1)});
    set_kernel_threads(config.n_threads);
    task(*comm, model, order);
  };
  return lead(ranks);
}

}  // namespace longhaul
