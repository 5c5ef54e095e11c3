// Start and end of MPI in this process. No <mpi.h> here, so programs need no #ifdef: in a build
// without MPI the constructor throws kUnsupported.
#pragma once
#include <chrono>
#include <functional>
#include <string>

namespace longhaul {

// True when mpirun or srun started this process as one of several ranks (or of one).
bool started_by_mpi_launcher();

// What MPI says of itself, "Open MPI v4.1.4, ..."; "" in a build without MPI.
std::string mpi_library();

// How a process leaves MPI at the end of its work.
struct MpiEnding {
  int status = 0;
  int status_if_stuck = 0;   // where MPI_Finalize never returns, as when a peer has died or hangs
  bool ends_others = false;  // all is done then: mpirun reports status_if_stuck, and ends the peers
  std::chrono::seconds limit{30};
};

// Create one, first thing in main(), on the thread that will own the communicators (or a thread
// that hands MPI over to it completely: the thread level is MPI_THREAD_SERIALIZED). MPI returns
// errors instead of aborting. If not all ranks start before the deadline, the process ends with
// status 75 (EX_TEMPFAIL).
class MpiEnvironment {
 public:
  MpiEnvironment(int* argc, char*** argv,
                 std::chrono::seconds deadline = std::chrono::seconds(300));
  // Like finish(0) if nobody called it; leaves MPI as it is while an exception unwinds.
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  // Collective over all processes. Calls `free_all`, which lets go of all that needs MPI, finalizes
  // MPI and returns the status. Either may hang once a peer has died: at the limit the process ends
  // at once.
  int finish(const MpiEnding& ending, const std::function<void()>& free_all = {});
  int finish(int exit_status) {
    return finish({.status = exit_status, .status_if_stuck = exit_status});
  }
  // Ends the process at once, without MPI_Finalize and without destructors: the way out after a
  // failure. A non-zero status makes mpirun end the other ranks.
  [[noreturn]] static void exit_now(int exit_status);

 private:
  bool finished_ = false;
};

}  // namespace longhaul
