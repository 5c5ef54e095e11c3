// What a command was told, in a form that ranks can compare.
#pragma once
#include <string>

#include "base/json.h"
#include "tools/flags/cli_app.h"

namespace longhaul {

// An object of the flags of `command` that were given, on the command line or in the environment:
// their values as texts. Of files that decide what is computed (a head profile, a chat template)
// the SHA-256 of what they hold, for hosts may have them in different places; of other paths only
// that they were given. Flags that ranks may have of their own (threads, devices, addresses, logs)
// and files that only rank 0 looks at are left out.
Json given_flags(const CLI::App& command);

// Whether the command line has this flag of `command`, "--seed". A value of the environment may be
// meant for another command: it is no reason to refuse this one.
bool is_on_command_line(const CLI::App& command, const std::string& flag);

}  // namespace longhaul
