// What the facts of all ranks mean: the checks of `longhaul doctor` that need no more than looking.
// Pure.
#pragma once
#include <vector>

#include "tools/doctor/finding.h"
#include "tools/doctor/rank_facts.h"

namespace longhaul {

// [rank] facts; at least one. In the order in which people read them.
std::vector<Finding> judge(const std::vector<RankFacts>& ranks);

}  // namespace longhaul
