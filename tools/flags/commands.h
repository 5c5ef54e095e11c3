// The subcommands of the program, each in a file of its own.
#pragma once
#include <functional>

#include "tools/flags/cli_app.h"

namespace longhaul {

// `run` is called when the command line named `app`; it returns the exit status or throws Error.
struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

// Each adds its subcommand to the program; main.cc calls them all.
Command add_run_command(CLI::App& program);

// Gives every option of `command` an environment variable: --ctx-size is LONGHAUL_CTX_SIZE. The
// flag wins.
void name_environment_variables(CLI::App& command);

}  // namespace longhaul
