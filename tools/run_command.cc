// `longhaul run`: flags, log settings, signals; then one of the two modes.
#include <CLI/CLI.hpp>

#include <memory>

#include "tools/flags/commands.h"
#include "tools/flags/given_flags.h"
#include "tools/flags/log_flags.h"
#include "tools/job/job.h"
#include "tools/job/stop_signal.h"
#include "tools/run_modes.h"
#include "tools/run_options.h"

namespace longhaul {
Command add_run_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "run", "Answer requests about documents: a file of them, or one question");
  const auto options = std::make_shared<RunOptions>();
  add_run_options(*app, *options);
  return {app, [app, options] {
            check_run_options(*options);
            options->job.flags_given = given_flags(*app);
            if (!options->checkpoint_every.empty())
              options->answers.checkpoint_every = checkpoint_every(options->checkpoint_every);
            open_log(options->log);
            install_stop_signals();
            const auto open_model = [&] {
              return source_of(open_folder(options->answers), options->job.weights);
            };
            return run_job(options->job, open_model, [&](JobRanks& ranks) {
              return options->input.empty() ? run_question(*options, ranks)
                                            : run_batch(*options, ranks);
            });
          }};
}

}  // namespace longhaul
