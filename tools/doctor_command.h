// `longhaul doctor`: is this cluster fit for a job?
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_doctor_command(CLI::App& program);

}  // namespace longhaul
