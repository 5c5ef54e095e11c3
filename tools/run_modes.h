// The two ways of `longhaul run`.
#pragma once
#include "tools/job/job.h"
#include "tools/run_options.h"

namespace longhaul {

// A file of requests in, a file of results out. Returns the exit status.
int run_batch(const RunOptions& options, JobRanks& ranks);

// One question from the command line, its answer on stdout as it grows.
int run_question(const RunOptions& options, JobRanks& ranks);

}  // namespace longhaul
