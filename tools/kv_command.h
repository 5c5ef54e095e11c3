// `longhaul kv`: what saved caches hold, whether they are whole, what differs between two.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_kv_command(CLI::App& program);

}  // namespace longhaul
