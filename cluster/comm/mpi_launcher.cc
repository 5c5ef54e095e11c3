// The part of mpi_environment.h that every build has.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <memory>
#include <thread>

#include "cluster/comm/mpi_environment.h"

namespace longhaul {

bool started_by_mpi_launcher() {
  // Open MPI's mpirun; MPICH's and others' process managers; srun with PMIx.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

// Another thread may hold a stream's lock in a read or a write that never ends: that must not keep
// the process, so what is not flushed within a second is lost.
void MpiEnvironment::exit_now(int exit_status) {
  try {
    const auto is_flushed = std::make_shared<std::atomic<bool>>(false);
    std::thread([is_flushed] {
      std::fflush(nullptr);
      *is_flushed = true;
    }).detach();
    for (int i = 0; i < 200 && !*is_flushed; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } catch (const std::exception&) {  // no thread or memory is left
  }
  _exit(exit_status);
}

}  // namespace longhaul
