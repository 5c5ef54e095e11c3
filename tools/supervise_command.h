// `longhaul supervise -- mpirun ... longhaul run ...`: starts a job again until it is done.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_supervise_command(CLI::App& program);

}  // namespace longhaul
