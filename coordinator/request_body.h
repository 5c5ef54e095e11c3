// The body of one /v1/completions request: every field checked, unknown ones refused.
#pragma once
#include "base/json.h"
#include "coordinator/requests.h"

namespace longhaul {

// Fills all but `line` and `custom_id`. Throws kCorruptData or kInvalidArgument with path and
// reason.
Request parse_completion_body(const JsonField& body);

}  // namespace longhaul
