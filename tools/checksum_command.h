// `longhaul checksum`: the SHA-256 of a model's files, for run --verify-weights and sha256sum -c.
#pragma once
#include "tools/flags/commands.h"

namespace longhaul {

Command add_checksum_command(CLI::App& program);

}  // namespace longhaul
