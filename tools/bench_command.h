// `longhaul bench`: how fast a model is on this machine, in llama-bench's form, and how fast it
// could be at best. Its subcommand: kernels.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_bench_command(CLI::App& program);

}  // namespace longhaul
