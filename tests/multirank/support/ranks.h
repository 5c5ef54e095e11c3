// Runs a test body on several ranks. The same test source is linked twice: with ranks as threads
// (ranks_in_threads.cc) and with ranks as processes under mpirun (ranks_under_mpi.cc,
// mpi_main.cc); longhaul_add_multirank_test makes both.
//
//   class Halo : public longhaul::test::RanksTest {};
//   TEST_P(Halo, ArrivesWhole) {
//     run([](Communicator& comm) { ...collectives...; EXPECT_EQ(got, want); });
//   }
//   LONGHAUL_INSTANTIATE_RANKS(Halo);
//
// Every rank runs the body. Inside it use EXPECT_*, never ASSERT_* on rank-local data before a
// collective: the others would wait for the rank that has left.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "cluster/comm/communicator.h"

namespace longhaul::test {

using RankBody = std::function<void(Communicator&)>;

// How many ranks the tests run on: several counts as threads, the launched one under mpirun.
std::vector<int> rank_counts();
bool ranks_are_processes();
// Collective: under mpirun all processes call it. Makes a new communicator for the body. An
// exception on any rank aborts the job and fails the test.
void run_ranks(int n_ranks, const RankBody& body, CommunicatorConfig config);

inline CommunicatorConfig test_communicator_config() {
  CommunicatorConfig config;
  config.default_deadline = std::chrono::seconds(30);
  return config;
}

class RanksTest : public testing::TestWithParam<int> {
 protected:
  void run(const RankBody& body, const CommunicatorConfig& config = test_communicator_config()) {
    run_ranks(GetParam(), body, config);
  }
};

// Collective over comm. True when `ok` is true on every rank.
inline bool all_agree(Communicator& comm, bool ok) {
  std::int64_t n_failed = ok ? 0 : 1;
  comm.all_reduce_sum(std::span(&n_failed, 1));
  return n_failed == 0;
}

}  // namespace longhaul::test

#define LONGHAUL_INSTANTIATE_RANKS(Suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(Ranks, Suite, testing::ValuesIn(::longhaul::test::rank_counts()), \
                           testing::PrintToStringParamName())
