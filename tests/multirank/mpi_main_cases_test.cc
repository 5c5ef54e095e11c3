// Tests that misbehave on purpose on one rank; check_mpi_main.cmake runs them to prove that the MPI
// test main notices. Not a test by itself.
#include <gtest/gtest.h>

#include <csignal>
#include <iostream>
#include <thread>

#include "cluster/comm/mpi_environment.h"
#include "tests/multirank/support/ranks.h"

namespace longhaul::test {
namespace {

class MpiMain : public RanksTest {};

TEST_P(MpiMain, Passes) {
  run([](Communicator& comm) { EXPECT_TRUE(all_agree(comm, true)); });
}
TEST_P(MpiMain, FailsOnRankOne) {
  run([](Communicator& comm) { EXPECT_NE(comm.rank(), 1) << "deliberate failure"; });
}
TEST_P(MpiMain, ThrowsOnRankOne) {
  run([](Communicator& comm) {
    if (comm.rank() == 1) throw Error(ErrorCode::kIo, "deliberate exception");
    while (true) comm.barrier();
  });
}
TEST_P(MpiMain, HangsOnRankOne) {
  run([](Communicator& comm) {
    while (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  });
}
// Needs a launcher that lets survivors live. MPI reports nothing; the deadline does.
TEST_P(MpiMain, SurvivesTheDeathOfRankOne) {
  CommunicatorConfig config = test_communicator_config();
  config.default_deadline = std::chrono::seconds(1);
  run(
      [](Communicator& comm) {
        if (comm.rank() == 1) std::raise(SIGKILL);
        try {
          comm.barrier();
        } catch (const Error& error) {
          std::cout << name_of(error.code()) << ": " << error.what() << std::endl;
        }
        MpiEnvironment::exit_now(7);  // MPI_Finalize might hang
      },
      config);
}

LONGHAUL_INSTANTIATE_RANKS(MpiMain);

}  // namespace
}  // namespace longhaul::test
