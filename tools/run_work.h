// What both ways of `longhaul run` hand to run_groups alike.
#pragma once
#include "tools/job/run_groups.h"
#include "tools/progress_display.h"
#include "tools/run_options.h"

namespace longhaul {

// What the flags say of it, shown by `display`, and ended by signals. Whose requests it is and what
// becomes of answers, the caller adds. Both must outlive it.
RunWork work_as_asked(const RunOptions& options, ProgressDisplay& display);

}  // namespace longhaul
