// The exit statuses that scripts and batch systems rely on.
#pragma once
#include "base/error.h"

namespace longhaul {

enum ExitStatus : int {
  kExitDone = 0,
  kExitSomeFailed = 1,   // see the errors file
  kExitUsage = 2,        // flags, settings, files that do not belong together
  kExitDoesNotFit = 3,   // memory
  kExitEnvironment = 4,  // what the machine or this build lacks
  kExitBadInput = 5,     // requests, documents, model files
  kExitInternal = 70,
  kExitStopped = 75,  // stopped early; the same command continues
};

ExitStatus exit_status_of(ErrorCode code);

}  // namespace longhaul
