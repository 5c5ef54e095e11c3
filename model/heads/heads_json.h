// What heads keep, as JSON: roles for people and for manifests of results, whole tables for plans.
#pragma once
#include "base/json.h"
#include "model/head_profile.h"
#include "model/heads/head_table.h"

namespace longhaul {

// {"sink", "recent", "n_retrieval", "retrieval_mask": a string of 0 and 1 for each layer}
Json to_json(const HeadRoles& roles);

// {"policies": [each different one once], "layers": [for each layer the policies' numbers by KV
// head]}. Throws kUnsupported for policies that cannot be run yet: no file holds them.
Json to_json(const HeadTable& heads);
// The table that to_json wrote. Throws kCorruptData naming file, place and reason.
HeadTable heads_from_json(const JsonField& field);

}  // namespace longhaul
