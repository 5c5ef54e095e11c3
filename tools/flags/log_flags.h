// --log-level, --log-file, --log-dir, --no-progress and --quiet: what goes to stderr besides
// answers.
#pragma once
#include <filesystem>
#include <string>

#include "tools/flags/cli_app.h"

namespace longhaul {

struct LogFlags {
  bool no_progress = false;
  bool quiet = false;  // nothing but answers, warnings and errors
  std::string level = "warning";
  std::filesystem::path file;  // empty: stderr
  std::filesystem::path dir;   // of event logs (base/event_log.h); empty: none
};

void add_log_flags(CLI::App& app, LogFlags& flags, const std::string& group);

// Log lines go where the flags say, from now on. Throws kInvalidArgument for a level that is none.
void open_log(const LogFlags& flags);

}  // namespace longhaul
