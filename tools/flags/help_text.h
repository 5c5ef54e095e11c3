// How `--help` looks: 80 columns, a placeholder that says what a flag takes, and no more.
#pragma once
#include "tools/flags/cli_app.h"

namespace longhaul {

// For `program` and all its subcommands, after they are declared.
void use_our_help(CLI::App& program);

}  // namespace longhaul
