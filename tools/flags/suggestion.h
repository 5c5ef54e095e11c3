// What a user may have meant by a word that no command knows.
#pragma once
#include <string>
#include <vector>

#include "tools/flags/cli_app.h"

namespace longhaul {

// For the first of the words that is nearly a command or a flag and none: the name that it is
// nearly, such as "--temperature"; "" when there is none.
std::string suggestion(const CLI::App& program, const std::vector<std::string>& words);

}  // namespace longhaul
