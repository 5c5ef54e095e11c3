// What one rank alone may hold. Nothing is planned for it, but what cannot fit is refused before
// anything is read: the kernel ends a process that takes more than there is, without a word. Pure.
#pragma once
#include <cstddef>
#include <cstdint>

#include "partition/memory_model.h"
#include "partition/workload.h"
#include "tools/job/job_config.h"
#include "tools/job/run_session.h"

namespace longhaul {

struct AloneLimits {
  std::int64_t chunk_len = 0;  // shortened where buffers would not fit otherwise
  std::size_t kv_bytes = 0;    // that caches may take
};

// What the planner counts of one rank for this workload.
RankBytes bytes_of_one_rank(const RunSession& session, const Workload& workload);

// For the longest document with one request on it; more requests wait for room. Weights that are
// mapped from files as they are give way when memory is short, and are not counted. Throws
// kOutOfMemory with what is missing and what would help. On a GPU nothing is refused here.
AloneLimits limits_of_one_rank(const RunSession& session, const JobConfig& config,
                               const Workload& workload, std::int64_t free_bytes);

}  // namespace longhaul
