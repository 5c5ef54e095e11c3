// `longhaul run`: flags, log settings, signals; then one of the two modes.
#include <fcntl.h>
#include <unistd.h>

#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "tools/commands.h"
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
            return options->input.empty() ? run_question(*options) : run_batch(*options);
          }};
}

}  // namespace longhaul
