// --log-level, --log-file and --no-progress: what goes to stderr besides answers.
#pragma once
#include <filesystem>
#include <string>

#include "tools/flags/cli_app.h"

namespace longhaul {

struct LogFlags {
  bool no_progress = false;
  std::string level = "warning";
  std::filesystem::path file;  // empty: stderr
};

void add_log_flags(CLI::App& app, LogFlags& flags, const std::string& group);

// Log lines go where the flags say, from now on. Throws kInvalidArgument for a level that is none.
void open_log(const LogFlags& flags);

}  // namespace longhaul
