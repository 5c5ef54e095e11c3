// `longhaul bench kv`: saving and restoring caches, each figure beside what the disk attains.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_bench_kv_command(CLI::App& bench);

}  // namespace longhaul
