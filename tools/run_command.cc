// Flags, log settings, signals; then one of the two modes.
#include "tools/run_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "base/event_log.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "kernels/cpu/isa.h"
#include "tools/flags/environment.h"
#include "tools/flags/given_flags.h"
#include "tools/flags/log_flags.h"
#include "tools/job/check_in.h"
#include "tools/job/job.h"
#include "tools/job/stop_signal.h"
#include "tools/run_modes.h"
#include "tools/run_options.h"

namespace longhaul {
namespace {

void log_start(const Json& flags_given) {
  if (!keeps_events()) return;
  JsonObject flags;
  for (const auto& [name, value] : std::get<JsonObject>(flags_given.value()))
    if (name != "sys") flags.emplace_back(name, value);  // what users write stays out of events
  log_event("start", {{"program", program_identity()},
                      {"isa", std::string(name_of(active_isa()))},
                      {"pid", static_cast<std::int64_t>(::getpid())},
                      {"flags", std::move(flags)}});
}

// What is written at the end of the run, asked before its work.
void check_last_outputs(const RunOptions& options, const JobRanks& ranks) {
  for (const std::filesystem::path& path : {options.report, options.save_cluster})
    if (!path.empty()) require_replaceable(path);
  if (!options.save_cluster.empty() && !ranks.plans) {
    print_stderr(
        "longhaul: warning: --save-cluster {} is not written: one rank alone follows no plan "
        "whose speeds could be compared\n",
        options.save_cluster.string());
  }
}

}  // namespace

Command add_run_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "run", "Answer requests about documents: a file of them, or one question");
  const auto options = std::make_shared<RunOptions>();
  add_run_options(*app, *options);
  return {app, [app, options] {
            check_run_options(*app, *options);
            options->job.flags_given = given_flags(*app);
            options->job.quiet = options->log.quiet;
            if (!options->end_time) options->end_time = job_end_time();
            open_log(options->log);
            install_stop_signals();
            const auto open_model = [&] {
              return source_of(open_folder(options->answers), options->job);
            };
            SharedFolders folders;
            const auto lead = [&](JobRanks& ranks) {
              check_last_outputs(*options, ranks);
              StatusBoard board(options->answers.model);
              const StatusService service(options->status, board);
              return options->input.empty() ? run_question(*options, ranks, folders, board)
                                            : run_batch(*options, ranks, folders, board);
            };
            log_start(options->job.flags_given);
            const int status = run_job(options->job, open_model, lead, folders.task());
            log_event("end", {{"status", status}});
            return status;
          }};
}

}  // namespace longhaul
