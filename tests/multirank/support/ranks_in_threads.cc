// Ranks as threads. LONGHAUL_TEST_RANKS is the list of rank counts, set by
// longhaul_add_multirank_test.
#include "cluster/comm/in_process.h"
#include "tests/multirank/support/ranks.h"

namespace longhaul::test {

std::vector<int> rank_counts() { return {LONGHAUL_TEST_RANKS}; }

bool ranks_are_processes() { return false; }

void run_ranks(int n_ranks, const RankBody& body, CommunicatorConfig config) {
  try {
    run_in_process(n_ranks, body, config);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the first rank to fail threw: " << error.what();
  }
}

}  // namespace longhaul::test
