// `longhaul eval needle`.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_eval_needle_command(CLI::App& eval);

}  // namespace longhaul
