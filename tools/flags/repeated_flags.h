// Flags that are given twice: a script's defaults, and what its user adds behind them.
#pragma once
#include "tools/flags/cli_app.h"

namespace longhaul {

// Of a flag that takes one value the last one counts, as for llama.cpp and vLLM; CLI11 would refuse
// the second. For `program` and all its subcommands, after they are declared.
void let_last_values_win(CLI::App& program);

}  // namespace longhaul
