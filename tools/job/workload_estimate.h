// What requests ask of the ranks, before they are read.
#pragma once
#include <cstdint>
#include <vector>

#include "coordinator/documents.h"
#include "coordinator/requests.h"
#include "partition/workload.h"
#include "tools/job/run_session.h"

namespace longhaul {

// What a plan must be able to carry. Tokens are estimated from bytes: samples of the longest
// document and the longest prompt are tokenised, and a tenth is added. What turns out longer is
// refused request by request, by the scheduler's budget. Reads the longest document's samples.
Workload estimate_workload(const RunSession& session, const JobConfig& job,
                           const std::vector<RequestGroup>& groups,
                           const std::vector<Request>& requests, std::int64_t n_ranks);

}  // namespace longhaul
