// `longhaul eval perplexity`.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_eval_perplexity_command(CLI::App& eval);

}  // namespace longhaul
