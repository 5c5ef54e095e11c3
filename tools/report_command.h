// `longhaul report`: what a question to support needs, in one file.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_report_command(CLI::App& program);

}  // namespace longhaul
