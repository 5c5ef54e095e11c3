// A subcommand of the program. Each is in a file of its own, NAME_command.cc.
#pragma once
#include <functional>

#include "tools/flags/cli_app.h"

namespace longhaul {

// `run` is called when the command line named `app`; it returns the exit status or throws Error.
struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

}  // namespace longhaul
