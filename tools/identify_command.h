// The subcommand `longhaul identify`: which KV heads of a model need every token.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_identify_command(CLI::App& program);

}  // namespace longhaul
