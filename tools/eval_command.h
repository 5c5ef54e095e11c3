// `longhaul eval`: how well a model does, by measurement. Its subcommands: needle, perplexity.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_eval_command(CLI::App& program);

}  // namespace longhaul
