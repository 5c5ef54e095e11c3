// Where ranks are, and how they find each other when a job starts.
#pragma once
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/comm/reach.h"
#include "tools/job/job_config.h"

namespace longhaul {

// This host with the interfaces that `wanted` names, or, where that is empty, those that lead to
// other hosts. Throws kInvalidArgument when it names none.
RankPlace place_of_this_rank(std::string_view wanted);
// How long ranks wait for each other's first messages: a part of the time for the start.
std::chrono::seconds greeting_limit(const JobConfig& config);

// Of all ranks' places, rank 0's address that the others most likely reach.
std::string control_address(const std::vector<RankPlace>& places);

}  // namespace longhaul
