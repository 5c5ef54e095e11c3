// Ranks as the processes that mpirun started.
#include "tests/multirank/support/ranks_under_mpi.h"

#include "tests/multirank/support/ranks.h"

namespace longhaul::test {
namespace {
int number_of_processes = 1;
}

void set_number_of_processes(int n) { number_of_processes = n; }

std::vector<int> rank_counts() { return {number_of_processes}; }

bool ranks_are_processes() { return true; }

void run_ranks(int, const RankBody& body, CommunicatorConfig config) {
  config.kind = CommunicatorKind::kMpi;
  const std::unique_ptr<Communicator> comm = make_communicator(config);
  try {
    body(*comm);
  } catch (const std::exception& error) {
    const Verdict verdict = verdict_of(std::current_exception(), comm->job_rank());
    comm->abort(verdict.code, verdict.message);
    ADD_FAILURE() << "rank " << comm->job_rank() << " threw: " << error.what();
  }
}

}  // namespace longhaul::test
