// What would have to change for a refused plan to fit: each change alone, found by trying. Pure.
#pragma once
#include <string>
#include <vector>

#include "partition/make_plan.h"

namespace longhaul {

// Changes that work, the mildest first: smaller caches, fewer requests at once, shorter chunks, a
// lower retrieval ratio, shorter documents, more ranks, more memory. Empty when none of them does.
std::vector<std::string> changes_that_fit(const PlanRequest& request);

// The longest document that fits, all else as it is; nullopt when not even none does.
std::optional<std::int64_t> max_document_tokens(const PlanRequest& request);

}  // namespace longhaul
