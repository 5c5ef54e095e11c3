// Flags that would have no effect beside the others of a command are refused: whoever gave one
// expects that it does something.
#pragma once
#include <span>
#include <string>

#include "tools/flags/cli_app.h"

namespace longhaul {

struct FlagUse {
  const char* flag;  // "--seed"
  bool has_effect;   // with the other flags as they are
  std::string why;   // where it has none: "it needs --self-sampled, which alone draws anything"
};

// Throws kInvalidArgument for the first of these flags that is on the command line (given_flags.h
// says why not in the environment) and has no effect.
void refuse_without_effect(const CLI::App& command, std::span<const FlagUse> uses);

}  // namespace longhaul
