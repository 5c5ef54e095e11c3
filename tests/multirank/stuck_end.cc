// The end of a job of which all is done, while rank 1 stands still (`peer`), or rank 0 itself hangs
// in what it frees before MPI_Finalize (`free`): mpirun must report 0 and leave no rank. Run by
// CTest with two ranks.
#include <csignal>
#include <memory>
#include <string_view>
#include <thread>

#include "cluster/comm/communicator.h"
#include "cluster/comm/mpi_environment.h"

int main(int argc, char** argv) {
  using namespace longhaul;
  const std::string_view what = argc > 1 ? argv[1] : "";
  MpiEnvironment mpi(&argc, &argv);
  CommunicatorConfig config;
  config.kind = CommunicatorKind::kMpi;
  std::unique_ptr<Communicator> comm = make_communicator(config);
  comm->barrier();
  const bool is_first = comm->rank() == 0;
  if (!is_first && what == "peer") std::raise(SIGSTOP);
  MpiEnding ending{.status = 0, .status_if_stuck = is_first ? 0 : 75, .ends_others = is_first};
  ending.limit = std::chrono::seconds(is_first ? 1 : 20);
  return mpi.finish(ending, [&] {
    while (is_first && what == "free") std::this_thread::sleep_for(std::chrono::seconds(1));
    comm.reset();
  });
}
