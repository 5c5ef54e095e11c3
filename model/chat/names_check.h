// Calls of names that nobody defines, found when a template is read.
#pragma once
#include "model/chat/parser.h"

namespace longhaul::chat {

// Throws kUnsupported with the line of a call of a name that is neither known (known_names.h) nor
// set, defined or passed anywhere in the template.
void check_called_names(const Syntax& syntax, const ParserState& state);

}  // namespace longhaul::chat
