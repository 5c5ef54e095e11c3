// The body of one request, of either url: every field checked, unknown ones refused.
#pragma once
#include "base/json.h"
#include "coordinator/requests.h"

namespace longhaul {

// Fills all but `line` and `custom_id`. Throws kCorruptData or kInvalidArgument with path and
// reason.
Request parse_completion_body(const JsonField& body);
Request parse_chat_body(const JsonField& body);

}  // namespace longhaul
