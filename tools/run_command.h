// `longhaul run`: answers requests about documents, a file of them or one question.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_run_command(CLI::App& program);

}  // namespace longhaul
