// Starts a job again until it is done: what `longhaul supervise` does.
//
// Open MPI 4's mpirun waits for ever for a host that is gone, after the job's own ranks have left;
// its exit status alone does not say whether another try helps. So somebody has to watch it who is
// no part of the job.
#pragma once
#include <chrono>

#include "tools/supervise/launcher_command.h"

namespace longhaul {

struct SuperviseConfig {
  Words command;  // launcher and program
  int max_restarts = 5;
  // How long the launcher may outlive the last rank on this host.
  std::chrono::milliseconds grace = std::chrono::seconds(15);
  // How long the launcher may take to start a rank on this host, where it is told the hosts;
  // others, such as srun, may have to wait for theirs.
  std::chrono::milliseconds launch_limit = std::chrono::minutes(5);
  // How long the job may take to end after it was told to: it saves what it has read.
  std::chrono::milliseconds stop_limit = std::chrono::minutes(10);
  // How long a host may take to start a process before it counts as lost.
  std::chrono::milliseconds probe_limit = std::chrono::seconds(20);
  std::chrono::milliseconds first_pause = std::chrono::seconds(1);  // doubles with every restart
};

// What an exit status of the launcher means.
enum class Ending {
  kFinal,    // done, or nothing that another try mends
  kStopped,  // Longhaul's own 75
  kLost,     // a signal, or one of the launcher's own statuses
};
Ending ending_of(int status);  // pure

// Runs the command to its end, again with the hosts that answer when it was stopped or lost.
// Signals TERM, INT, HUP, USR1 and USR2 are handed on, and it does not start again after one; what
// has not ended stop_limit later is killed. Tells people on stderr. Returns the exit status for the
// whole.
int supervise(const SuperviseConfig& config);

}  // namespace longhaul
