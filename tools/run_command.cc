// `longhaul run`: flags, log settings, signals; then one of the two modes.
#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cluster/comm/mpi_environment.h"
#include "tools/commands.h"
#include "tools/job_plan.h"
#include "tools/launch.h"
#include "tools/run_modes.h"
#include "tools/run_options.h"
#include "tools/stop_signal.h"

namespace longhaul {
namespace {

int log_descriptor = -1;

void write_to_log_file(std::string_view line) {
  [[maybe_unused]] const auto written = ::write(log_descriptor, line.data(), line.size());
}

void open_log(const RunOptions& options) {
  set_log_levels(options.log_level);
  if (options.log_file.empty()) return;
  log_descriptor =
      ::open(options.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_descriptor < 0) throw_errno("cannot open", options.log_file.string());
  set_log_sink(write_to_log_file);
}

// Without --ranks as many threads as the cluster file describes or the plan needs, else one rank.
std::int64_t thread_ranks(const RunOptions& options) {
  if (options.n_ranks) return *options.n_ranks;
  if (!options.cluster.empty()) return read_cluster(options.cluster).n_ranks();
  std::int64_t n_ranks = 1;
  if (options.plan.empty()) return n_ranks;
  const Plan plan = read_plan(options.plan);
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      for (const Rank rank : stage.ring) n_ranks = std::max(n_ranks, rank.value + 1);
    }
  }
  return n_ranks;
}

int run_on_ranks(const RunOptions& options, const std::function<int(const Launch&)>& run) {
  if (started_by_mpi_launcher()) {
    require(!options.n_ranks,
            "--ranks makes threads of one process; under mpirun and srun every process is a rank");
    return run_under_mpi(options, run);
  }
  Launch launch;
  launch.n_ranks = thread_ranks(options);
  if (options.n_ranks || launch.n_ranks > 1 || !options.plan.empty()) {
    launch.start = [&](const JobStart& job) {
      return start_on_threads(options, launch.n_ranks, job);
    };
  }
  return run(launch);
}

}  // namespace

Command add_run_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "run", "Answer requests about documents: a file of them, or one question");
  const auto options = std::make_shared<RunOptions>();
  add_run_options(*app, *options);
  return {app, [options] {
            check_run_options(*options);
            open_log(*options);
            install_stop_signals();
            return run_on_ranks(*options, [&](const Launch& launch) {
              return options->input.empty() ? run_question(*options, launch)
                                            : run_batch(*options, launch);
            });
          }};
}

}  // namespace longhaul
