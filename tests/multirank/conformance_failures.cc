// What must happen when a rank fails, is missing, or sends the wrong thing: nobody waits for ever,
// everybody learns who it was, and nothing is sent any more.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "tests/multirank/support/faulty_communicator.h"
#include "tests/multirank/support/ranks.h"
#include "tests/multirank/support/ring_shift.h"

namespace longhaul::test {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

class Deadlines : public RanksTest {};
class Aborts : public RanksTest {};
class Agreement : public RanksTest {};
class Faults : public RanksTest {};

CommunicatorConfig impatient() {
  CommunicatorConfig config;
  config.default_deadline = std::chrono::milliseconds(400);
  return config;
}

// The error that `call` throws; nullopt if none.
std::optional<Error> error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

#define EXPECT_FAILS(call, wanted_code, text)                                                \
  do {                                                                                       \
    const auto thrown = error_of([&] { call; });                                             \
    if (!thrown) {                                                                           \
      ADD_FAILURE() << #call << " did not throw";                                            \
    } else {                                                                                 \
      EXPECT_EQ(name_of(thrown->code()), name_of(ErrorCode::wanted_code)) << thrown->what(); \
      EXPECT_THAT(thrown->what(), HasSubstr(text));                                          \
    }                                                                                        \
  } while (false)

TEST_P(Deadlines, AMissingRankIsNamed) {
  run(
      [](Communicator& comm) {
        const int missing = comm.size() / 2;
        if (comm.size() == 1 || comm.rank() == missing) return;
        EXPECT_FAILS(comm.barrier(), kTimeout, fmt::format("from rank {}", missing));
        EXPECT_TRUE(comm.broken());
        EXPECT_FAILS(comm.barrier(), kFailedPrecondition, "cannot be used after its failure");
      },
      impatient());
}

TEST_P(Deadlines, TheMessageSaysWhoWaitedForWhatAndHowLong) {
  run(
      [](Communicator& comm) {
        if (comm.size() == 1 || comm.rank() != 0) return;
        std::vector<std::byte> buffer(64);
        Transfer never = comm.start_receive(1, {Traffic::kHalo, 2}, buffer);
        const auto thrown = error_of([&] { never.wait(); });
        ASSERT_TRUE(thrown);
        EXPECT_EQ(name_of(thrown->code()), name_of(ErrorCode::kTimeout));
        // 0.4 s, or later on a busy machine.
        EXPECT_THAT(thrown->what(),
                    MatchesRegex(".*rank 0: waited [0-9.]+ s for halo stream 2 \\(64 bytes\\) from "
                                 "rank 1, then gave up.*"));
      },
      impatient());
}

TEST_P(Deadlines, ASendThatNobodyReceives) {
  run(
      [](Communicator& comm) {
        if (comm.size() == 1 || comm.rank() != 0) return;
        const std::vector<std::byte> data(4 << 20);  // too large to be buffered
        Transfer send = comm.start_send(1, {Traffic::kKeys}, data);
        EXPECT_FAILS(send.wait(), kTimeout, "keys (4194304 bytes) to rank 1");
      },
      impatient());
}

TEST_P(Deadlines, OfOneWaitMayBeShorter) {
  run([](Communicator& comm) {
    std::vector<std::byte> buffer(1);
    Transfer never = comm.start_receive(comm.previous(), {Traffic::kOther}, buffer);
    EXPECT_FAILS(never.wait(deadline_in(std::chrono::milliseconds(50))), kTimeout, "gave up");
  });
}

TEST_P(Aborts, WakeEverybodyWithTheSameVerdict) {
  run([](Communicator& comm) {
    const int failing = comm.size() - 1;
    if (comm.rank() == failing) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // most peers wait by then
      comm.abort(ErrorCode::kOutOfMemory, "no block is free");
    }
    const std::string verdict = fmt::format("rank {} failed: no block is free", failing);
    EXPECT_FAILS(for (;;) comm.barrier(), kPeerFailed, verdict);
    EXPECT_TRUE(comm.broken());
    EXPECT_FAILS(comm.barrier(), kPeerFailed, verdict);
    EXPECT_FAILS(comm.progress(), kPeerFailed, verdict);
  });
}

TEST_P(Aborts, ReachGroupsAndTheirOrigin) {
  run([](Communicator& comm) {
    std::unique_ptr<Communicator> group;
    const auto use_both = [&] {
      group = comm.split(comm.rank() % 2, 0);  // rank 0 may be through before the others
      if (comm.rank() == 0) group->abort(ErrorCode::kIo, "disk is gone");
      for (;;) comm.barrier();
    };
    EXPECT_FAILS(use_both(), kPeerFailed, "rank 0 failed: disk is gone");
    if (group) EXPECT_FAILS(group->barrier(), kPeerFailed, "rank 0 failed: disk is gone");
  });
}

TEST_P(Aborts, FromAnotherThreadOfTheRank) {
  run([](Communicator& comm) {
    std::jthread control;
    if (comm.rank() == 0) {
      control = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        comm.abort(ErrorCode::kCancelled, "the coordinator said so");
      });
    }
    std::vector<std::byte> buffer(1);
    EXPECT_FAILS(comm.start_receive(comm.previous(), {Traffic::kOther}, buffer).wait(), kPeerFailed,
                 "rank 0 failed: the coordinator said so");
  });
}

// The rank that another thread has aborted must tell its peers even if it finds out outside of a
// wait, or never calls its communicator again.
TEST_P(Aborts, FromAnotherThreadWhileTheRankComputes) {
  for (const bool calls_again : {true, false}) {
    run([&](Communicator& comm) {
      if (comm.rank() == 0) {
        std::jthread([&] { comm.abort(ErrorCode::kCancelled, "the job's time is over"); }).join();
        if (!calls_again) return;
      }
      EXPECT_FAILS(for (;;) comm.barrier(), kPeerFailed, "rank 0 failed: the job's time is over");
    });
  }
}

TEST_P(Agreement, WhenNobodyFailed) {
  run([](Communicator& comm) { EXPECT_EQ(comm.agree({}), Verdict{}); });
}

TEST_P(Agreement, OnTheOneThatFailed) {
  run([](Communicator& comm) {
    for (int failing = 0; failing < comm.size(); ++failing) {
      const Verdict verdict = failed(failing, ErrorCode::kOutOfMemory, "too much");
      EXPECT_EQ(comm.agree(comm.rank() == failing ? verdict : Verdict{}), verdict);
    }
    EXPECT_FALSE(comm.broken());
  });
}

TEST_P(Agreement, OnTheLowestOfSeveral) {
  run([](Communicator& comm) {
    const int lowest = comm.size() / 2;
    const Verdict mine =
        comm.rank() < lowest
            ? Verdict{}
            : failed(comm.rank(), ErrorCode::kIo,
                     std::string(static_cast<std::size_t>(comm.rank()) * 1000, 'x'));
    EXPECT_EQ(comm.agree(mine), failed(lowest, ErrorCode::kIo,
                                       std::string(static_cast<std::size_t>(lowest) * 1000, 'x')));
  });
}

TEST_P(Agreement, ThrowsTheSameErrorEverywhere) {
  run([](Communicator& comm) {
    const int failing = comm.size() - 1;
    const auto work = [&] {
      if (comm.rank() == failing) throw Error(ErrorCode::kCorruptData, "layer 3 is damaged");
    };
    EXPECT_FAILS(agree_on(comm, work), kCorruptData,
                 fmt::format("rank {}: layer 3 is damaged", failing));
    agree_on(comm, [] {});
  });
}

TEST_P(Faults, AMessageOfAnotherSizeIsRefused) {
  run([](Communicator& comm) {
    const std::vector<std::byte> out(comm.rank() % 2 == 0 ? 8 : 32);
    std::vector<std::byte> in(16);
    RingTransfer transfer = start_ring_shift(comm, out, in);
    // A rank that gives up at once may take its own message back, if it had to be copied first.
    const Deadline soon = deadline_in(std::chrono::seconds(1));
    while (!transfer.send.test() && Clock::now() < soon) comm.progress();
    EXPECT_FAILS(transfer.receive.wait(), kInvalidArgument, "expected a message of 16 bytes");
    EXPECT_TRUE(comm.broken());
  });
}

TEST_P(Faults, ARequestGivenUpBreaksTheCommunicator) {
  run([](Communicator& comm) {
    std::vector<std::byte> buffer(1000);
    { Transfer never = comm.start_receive(comm.previous(), {Traffic::kHalo}, buffer); }
    EXPECT_TRUE(comm.broken());
    EXPECT_FAILS(comm.barrier(), kFailedPrecondition, "given up before it was complete");
  });
}

TEST_P(Faults, ALostMessageIsATimeoutThatNamesTheSender) {
  run(
      [](Communicator& inner) {
        FaultyCommunicator comm(
            inner,
            {{.kind = Fault::Kind::kDrop, .job_rank = 0, .traffic = Traffic::kKeys, .nth = 1}});
        std::vector<std::byte> out(100);
        std::vector<std::byte> in(100);
        ring_shift(comm, out, in);
        if (comm.rank() == 1 % comm.size()) {
          EXPECT_FAILS(ring_shift(comm, out, in), kTimeout, "from rank 0");
        } else {
          ring_shift(comm, out, in);
        }
      },
      impatient());
}

TEST_P(Faults, ADelayShorterThanTheDeadlineChangesNothing) {
  run([](Communicator& inner) {
    FaultyCommunicator comm(inner, {{.kind = Fault::Kind::kDelay,
                                     .job_rank = 0,
                                     .traffic = Traffic::kAllReduce,
                                     .delay = std::chrono::milliseconds(100)}});
    std::vector<float> values(10, 1.0F);
    comm.all_reduce_sum(values);
    EXPECT_EQ(values, std::vector<float>(10, static_cast<float>(comm.size())));
  });
}

TEST_P(Faults, AFailingSendReachesEverybodyAsOneVerdict) {
  run([](Communicator& inner) {
    FaultyCommunicator comm(
        inner, {{.kind = Fault::Kind::kThrow, .job_rank = 0, .traffic = Traffic::kKeys, .nth = 2}});
    std::vector<std::byte> out(50'000);
    std::vector<std::byte> in(50'000);
    const auto error = error_of([&] {
      for (int step = 0; step < 1000; ++step) ring_shift(comm, out, in);
    });
    if (comm.rank() == 0 && error) comm.abort(error->code(), error->what());
    EXPECT_TRUE(error.has_value());
    if (error && comm.rank() != 0) {
      EXPECT_THAT(error->what(), HasSubstr("rank 0 failed: injected fault"));
    }
  });
}

TEST_P(Faults, ReachGroupsSplitFromTheFaultyOne) {
  run([](Communicator& inner) {
    FaultyCommunicator comm(
        inner, {{.kind = Fault::Kind::kCorrupt, .job_rank = 0, .traffic = Traffic::kHidden}});
    const auto group = comm.split(0, 0);
    const std::vector<std::byte> out(9);
    std::vector<std::byte> in(9);
    ring_shift(*group, out, in, {Traffic::kHidden});
    EXPECT_EQ(in[4], comm.previous() == 0 ? std::byte{1} : std::byte{0});
  });
}

LONGHAUL_INSTANTIATE_RANKS(Deadlines);
LONGHAUL_INSTANTIATE_RANKS(Aborts);
LONGHAUL_INSTANTIATE_RANKS(Agreement);
LONGHAUL_INSTANTIATE_RANKS(Faults);

}  // namespace
}  // namespace longhaul::test
