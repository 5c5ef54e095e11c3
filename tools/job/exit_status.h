// The exit statuses that scripts and batch systems rely on.
#pragma once
#include <string>

#include "base/error.h"

namespace longhaul {

enum ExitStatus : int {
  kExitDone = 0,
  kExitSomeFailed = 1,   // some requests failed: see the errors file
  kExitUsage = 2,        // flags, or files and ranks that do not belong together
  kExitDoesNotFit = 3,   // memory
  kExitEnvironment = 4,  // what the machine or this build lacks: disk, files, devices, libraries
  kExitBadInput = 5,     // a model, document, request, profile or plan is missing, broken or of a
                         // kind that is not read
  kExitInternal = 70,    // an error of Longhaul itself
  kExitStopped = 75,     // a stop was asked for or a rank was lost: the same command may go on
};

ExitStatus exit_status_of(ErrorCode code);

// What every command says of them at the end of its help: one meaning each, for all commands.
std::string exit_status_help();

}  // namespace longhaul
