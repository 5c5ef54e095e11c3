// Start and end of MPI in this process. No <mpi.h> here, so programs need no #ifdef: in a build
// without MPI the constructor throws kUnsupported.
#pragma once
#include <chrono>
#include <string>

namespace longhaul {

// True when mpirun or srun started this process as one of several ranks (or of one).
bool started_by_mpi_launcher();

// What MPI says of itself, "Open MPI v4.1.4, ..."; "" in a build without MPI.
std::string mpi_library();

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

  // Collective over all processes. Finalizes MPI and returns `exit_status`. MPI_Finalize may hang
  // for ever once a peer has died; after 30 s the process ends at once with `exit_status`.
  int finish(int exit_status);
  // Ends the process at once, without MPI_Finalize and without destructors: the way out after a
  // failure. A non-zero status makes mpirun end the other ranks.
  [[noreturn]] static void exit_now(int exit_status);

 private:
  bool finished_ = false;
};

}  // namespace longhaul
