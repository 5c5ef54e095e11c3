// Compiled instead of the other mpi*.cc where MPI was not found.
#include "base/error.h"
#include "cluster/comm/mpi_communicator.h"
#include "cluster/comm/mpi_environment.h"
#include "cluster/comm/reach.h"

namespace longhaul {
namespace {

[[noreturn]] void throw_absent() {
  throw Error(ErrorCode::kUnsupported,
              "this build of Longhaul has no MPI: ranks can only be threads of one process "
              "(--ranks N). For several nodes, install MPI (libopenmpi-dev) and build again");
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const CommunicatorConfig&) { throw_absent(); }

Reach find_reach(const RankPlace&, std::chrono::seconds) { throw_absent(); }

std::string mpi_library() { return ""; }

MpiEnvironment::MpiEnvironment(int*, char***, std::chrono::seconds) { throw_absent(); }
MpiEnvironment::~MpiEnvironment() = default;
int MpiEnvironment::finish(const MpiEnding& ending, const std::function<void()>& free_all) {
  finished_ = true;
  if (free_all) free_all();
  return ending.status;
}

}  // namespace longhaul
