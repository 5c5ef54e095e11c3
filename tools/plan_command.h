// `longhaul plan`: what would run where, what fits, how long it takes; also for clusters that do
// not exist yet. Reads config.json and the headers of the weights; needs neither MPI nor the
// cluster.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

// Its exit status is 0 for a plan and kExitDoesNotFit for a refusal; both are explained on stdout.
Command add_plan_command(CLI::App& program);

}  // namespace longhaul
