// Running ranks as threads, and the factory. What the communicator itself must do is in
// tests/multirank/conformance_*.cc.
#include "cluster/comm/in_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "build_info.h"
#include "cluster/comm/mpi_environment.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

TEST(RunInProcess, EveryRankRunsOnce) {
  for (const int n_ranks : {1, 2, 7, 64}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(n_ranks));
    run_in_process(n_ranks, [&](Communicator& comm) {
      EXPECT_EQ(comm.size(), n_ranks);
      ++runs[static_cast<std::size_t>(comm.rank())];
      comm.barrier();
    });
    for (const auto& n : runs) EXPECT_EQ(n, 1);
  }
}

TEST(RunInProcess, ThrowsTheFirstErrorAndFreesTheOthers) {
  std::atomic<int> n_woken = 0;
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == 2) throw Error(ErrorCode::kCorruptData, "layer 7 is damaged");
    try {
      comm.barrier();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
      EXPECT_THAT(error.what(), HasSubstr("rank 2 failed: layer 7 is damaged"));
      ++n_woken;
      throw;
    }
  };
  try {
    run_in_process(4, body);
    ADD_FAILURE() << "did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_STREQ(error.what(), "layer 7 is damaged");
  }
  EXPECT_EQ(n_woken, 3);
}

TEST(RunInProcess, KeepsExceptionsOfOtherTypes) {
  EXPECT_THROW(run_in_process(2,
                              [](Communicator& comm) {
                                if (comm.rank() == 1) throw std::out_of_range("odd");
                                comm.barrier();
                              }),
               std::out_of_range);
}

TEST(RunInProcess, RefusesANumberOfRanksThatMakesNoSense) {
  EXPECT_THROW(run_in_process(0, [](Communicator&) {}), Error);
  EXPECT_THROW(run_in_process(-1, [](Communicator&) {}), Error);
}

TEST(MakeCommunicator, AloneByDefault) {
  const auto comm = make_communicator({});
  EXPECT_EQ(comm->size(), 1);
  comm->barrier();
  std::vector<float> values = {3.0F};
  comm->all_reduce_sum(values);
  EXPECT_EQ(values[0], 3.0F);
}

TEST(MakeCommunicator, RefusesWhatCannotBe) {
  CommunicatorConfig config;
  config.rank = 1;
  EXPECT_THROW(make_communicator(config), Error);
  config.rank = 0;
  config.default_deadline = std::chrono::milliseconds(0);
  EXPECT_THROW(make_communicator(config), Error);
}

TEST(MakeCommunicator, MpiNeedsMpi) {
  CommunicatorConfig config;
  config.kind = CommunicatorKind::kMpi;
  try {
    make_communicator(config);
    ADD_FAILURE() << "did not throw";
  } catch (const Error& error) {
    if (build_info::kHasMpi) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.what(), HasSubstr("MpiEnvironment"));
    } else {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr("has no MPI"));
    }
  }
}

// A transfer that is given up while the other side copies must not leave a dangling buffer. Run
// under the address and thread sanitizers this proves that withdraw() waits.
TEST(InProcess, GivingUpWhileThePeerCopies) {
  for (int round = 0; round < 30; ++round) {
    run_in_process(2, [&](Communicator& comm) {
      std::vector<std::byte> buffer(1 << 20);
      if (comm.rank() == 0) {
        Transfer receive = comm.start_receive(1, {Traffic::kOther}, buffer);
        std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
      } else {
        Transfer send = comm.start_send(0, {Traffic::kOther}, buffer);
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
  }
}

TEST(InProcess, SixtyFourRanksOnTheseCores) {
  run_in_process(64, [](Communicator& comm) {
    std::vector<double> values(100, 1.0);
    for (int i = 0; i < 3; ++i) comm.all_reduce_sum(values);
    EXPECT_EQ(values[99], 64.0 * 64.0 * 64.0);
  });
}

}  // namespace
}  // namespace longhaul
