// `longhaul bench kernels`: the operators alone, each figure beside what the machine attains.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_bench_kernels_command(CLI::App& bench);

}  // namespace longhaul
