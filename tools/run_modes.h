// The two ways of `longhaul run`.
#pragma once
#include "tools/job/job.h"
#include "tools/job/shared_folders.h"
#include "tools/run_options.h"
#include "tools/status/job_status.h"

namespace longhaul {

// A file of requests in, a file of results out. Returns the exit status.
int run_batch(const RunOptions& options, JobRanks& ranks, SharedFolders& folders,
              StatusBoard& status);

// One question from the command line, its answer on stdout as it grows.
int run_question(const RunOptions& options, JobRanks& ranks, SharedFolders& folders,
                 StatusBoard& status);

}  // namespace longhaul
