#include "tools/supervise_command.h"

#include <CLI/CLI.hpp>

#include <memory>

#include "tools/flags/environment.h"
#include "tools/flags/seconds_flag.h"
#include "tools/job/exit_status.h"
#include "tools/supervise/supervise.h"

namespace longhaul {
Command add_supervise_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "supervise",
      "Start a job of several hosts again until it is done, without hosts that are lost");
  const auto config = std::make_shared<SuperviseConfig>();
  app->add_option("--max-restarts", config->max_restarts, "Starts after the first")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  add_seconds(
      *app, "--grace", config->grace, 1e5,
      "Seconds that the launcher may outlive the last rank on this host: Open MPI waits for "
      "ever for a host that is gone");
  add_seconds(*app, "--launch-timeout", config->launch_limit, 1e5,
              "Seconds in which a launcher with --host or --hostfile must start a rank on this "
              "host: one that waits for a host that a firewall hides may take many minutes");
  add_seconds(*app, "--stop-timeout", config->stop_limit, 1e6,
              "Seconds in which a job that was told to stop by a signal must have saved what it "
              "has read and ended, else it is killed");
  add_seconds(*app, "--probe-timeout", config->probe_limit, 1e5,
              "Seconds in which a host must start a process, else the job goes on without it");
  app->add_option("command", config->command, "After --: launcher and program")->required();
  name_environment_variables(*app);
  app->footer(
      R"(The launcher's --host or --hostfile say which hosts there are; at least one
rank has to run on the host where supervise does. A job that ends with 75, by a
signal or with one of the launcher's own statuses is started again; what was
answered is not done again. After SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2,
which it hands on, nothing is started again.
Examples:
  longhaul supervise --max-restarts 5 -- mpirun --hostfile hosts -n 16 \
    longhaul run -m models/llama -i requests.jsonl -o results.jsonl
)" + exit_status_help());
  return {app, [config] { return supervise(*config); }};
}

}  // namespace longhaul
