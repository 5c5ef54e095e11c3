#include "tools/flags/log_flags.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/event_log.h"
#include "base/log.h"

namespace longhaul {
namespace {

int log_descriptor = -1;

void write_to_log_file(std::string_view line) {
  [[maybe_unused]] const auto written = ::write(log_descriptor, line.data(), line.size());
}

}  // namespace

void add_log_flags(CLI::App& app, LogFlags& flags, const std::string& group) {
  app.add_flag("--no-progress", flags.no_progress, "Show no progress on stderr")->group(group);
  app.add_flag("-q,--quiet", flags.quiet,
               "Print nothing but answers, warnings, errors and the last line")
      ->group(group);
  app.add_option("--log-level", flags.level,
                 "debug, info, warning, error, off; also per part (comm, wire, "
                 "step, snapshot, run): info,comm=error")
      ->type_name("LEVELS")
      ->capture_default_str()
      ->group(group);
  app.add_option("--log-file", flags.file, "Write log lines to this file instead of stderr")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--log-dir", flags.dir,
                 "Write what happens to FOLDER/rank-0000.jsonl and so on, a line of JSON for each "
                 "event of each rank, with times of one clock; for longhaul report")
      ->type_name("FOLDER")
      ->group(group);
}

void open_log(const LogFlags& flags) {
  try {
    set_log_levels(flags.level);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("--log-level: {}", error.what()));
  }
  if (!flags.dir.empty()) open_event_log(flags.dir);
  if (flags.file.empty()) return;
  // Without O_NONBLOCK, opening a pipe would wait for its reader.
  log_descriptor =
      ::open(flags.file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
  if (log_descriptor < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--log-file {}: {}", flags.file.string(),
                            errno == ENXIO ? "nobody reads this pipe"
                                           : std::generic_category().message(errno)));
  }
  ::fcntl(log_descriptor, F_SETFL, ::fcntl(log_descriptor, F_GETFL) & ~O_NONBLOCK);
  set_log_sink(write_to_log_file);
}

}  // namespace longhaul
