#include "tools/flags/flag_use.h"

#include <fmt/format.h>

#include "base/error.h"
#include "tools/flags/given_flags.h"

namespace longhaul {

void refuse_without_effect(const CLI::App& command, std::span<const FlagUse> uses) {
  for (const FlagUse& use : uses) {
    require(use.has_effect || !is_on_command_line(command, use.flag),
            fmt::format("{} has no effect here: {}", use.flag, use.why));
  }
}

}  // namespace longhaul
