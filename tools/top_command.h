// `longhaul top`: what a job's status server says, in a terminal.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_top_command(CLI::App& program);

}  // namespace longhaul
