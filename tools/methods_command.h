// `longhaul eval methods`.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_eval_methods_command(CLI::App& eval);

}  // namespace longhaul
