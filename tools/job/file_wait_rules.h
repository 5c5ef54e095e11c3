// What a job does about files that do not come: people are told, and a stop, or --step-timeout,
// ends it.
#pragma once
#include "base/file_wait.h"
#include "tools/job/job_config.h"
#include "tools/job/job_end.h"

namespace longhaul {

// Of the process that leads. `end` must outlive the policy that they become.
FileWaitRules file_wait_rules(const JobConfig& config, JobEnd& end);
// Of the others: the one that leads knows what they do, speaks for them and ends the job.
FileWaitRules file_wait_rules_of_follower();

}  // namespace longhaul
