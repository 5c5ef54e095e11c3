// What is wrong with words that no command knows, and what a user may have meant by them.
#pragma once
#include <string>

#include "tools/flags/cli_app.h"

namespace longhaul {

// Of a command line that `program` has parsed, to the end or to an error: "--modle is not known;
// did you mean --model?" for the words that it could not place, in the order in which they were
// given; "" when there are none. What is missing is often only misspelt: this is to be said first.
std::string unknown_words(const CLI::App& program);

}  // namespace longhaul
