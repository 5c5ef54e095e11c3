// The part of a policy that says which tokens stay, as JSON: beside heads_json.h, for plans and
// manifests.
#pragma once
#include "base/json.h"
#include "model/heads/head_policy.h"

namespace longhaul {

// Throws kInternal for queries that cannot be observed yet: no file holds them.
Json keep_to_json(const KeepBudget& keep);
// Throws kCorruptData naming file, place and reason.
KeepBudget keep_from_json(const JsonField& field);

}  // namespace longhaul
