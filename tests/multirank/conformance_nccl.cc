// What is particular to exchanges by NCCL: what its communicators and GPUs would not forgive, and
// its failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "base/device/step_graph.h"
#include "cluster/comm/gpu_communicator.h"
#include "cluster/comm/in_process.h"
#include "tests/multirank/support/fake_gpus.h"
#include "tests/multirank/support/fake_nccl_calls.h"
#include "tests/multirank/support/gpu_values.h"
#include "tests/multirank/support/ranks.h"
#include "tests/multirank/support/ranks_on_gpus.h"
#include "tests/multirank/support/ring_shift.h"
#include "tests/multirank/support/slow_communicator.h"

namespace longhaul::test {
namespace {

using testing::HasSubstr;
using Floats = GpuValues<float>;

// The made-up GPU blocks where a real one does: when memory is taken or freed while a launch waits
// for another rank, and when launches of several communicators have to take turns.
class Nccl : public RanksTest {
 protected:
  void SetUp() override {
    set_fake_gpus(64);
    set_fake_gpus_patience(std::chrono::seconds(20));
  }
  void TearDown() override {
    fake<decltype(fake_nccl_fail_after)>("fake_nccl_fail_after")(-1);
    fake<decltype(fake_nccl_stall)>("fake_nccl_stall")(0);
    EXPECT_EQ(fake<decltype(fake_nccl_communicators)>("fake_nccl_communicators")(), 0)
        << "communicators that nobody ended";
  }
};

CommunicatorConfig impatient() {
  CommunicatorConfig config;
  config.default_deadline = std::chrono::milliseconds(1500);
  return config;
}

std::optional<Error> error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

std::vector<float> constants(float value) { return std::vector<float>(3000, value); }

TEST_P(Nccl, CarriesTransfersAndCollectivesOfGpuMemory) {
  const int before = fake<decltype(fake_nccl_ids)>("fake_nccl_ids")();
  run([](Communicator& comm) {
    cuda::Stream& stream = stream_of_this_rank();
    const Floats out(stream, constants(static_cast<float>(comm.rank())));
    const Floats in(stream, constants(-1));
    if (comm.size() > 1) start_ring_exchange(comm, out.bytes(), in.bytes()).wait();
    EXPECT_EQ(in.values(), constants(comm.size() == 1 ? -1 : static_cast<float>(comm.previous())));
    comm.all_reduce_sum(out.span());
    EXPECT_EQ(out.values(), constants(static_cast<float>(comm.size() * (comm.size() - 1) / 2)));
  });
  const int made = fake<decltype(fake_nccl_ids)>("fake_nccl_ids")() - before;
  EXPECT_EQ(made, GetParam() == 1 ? 0 : 1);
}

// As a worker's memory does, which grows with its chunks: at all moments of a transfer that all
// ranks look at in step, while messages between hosts take some looks to arrive.
TEST_P(Nccl, MemoryIsTakenAndFreedWhileTransfersAreUnderWay) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank sends nothing";
  run_in_process(GetParam(), [](Communicator& host) {
    constexpr int kMoments = 16;
    SlowCommunicator slow(host, /*n_looks=*/3);
    cuda::Stream stream(host.rank());
    const auto comm = make_gpu_communicator(slow, gpu_communicator_config(stream));
    const Floats out(stream, constants(static_cast<float>(comm->rank())));
    const Floats in(stream, constants(-1)), in_step(stream, constants(-1));
    for (int round = 0; round < 2 * kMoments; ++round) {
      host.barrier();
      RingTransfer alone = start_ring_shift(*comm, out.bytes(), in.bytes());
      Exchange in_order = start_ring_exchange(*comm, out.bytes(), in_step.bytes());
      for (int i = 0; i < round % kMoments; ++i) {
        comm->progress();
        host.barrier();
      }
      { const cuda::Buffer grown(1000 + static_cast<std::size_t>(round)); }
      alone.wait();
      in_order.wait();
    }
    EXPECT_EQ(in.values(), constants(static_cast<float>(comm->previous())));
    EXPECT_EQ(in_step.values(), constants(static_cast<float>(comm->previous())));
  });
}

// Two groups with one order of calls: all ranks, and rings of two; ranks are in both.
TEST_P(Nccl, GroupsTakeTurns) {
  run([](Communicator& comm) {
    cuda::Stream& stream = stream_of_this_rank();
    const auto part = comm.split(comm.rank() / 2, 0);
    comm.prepare_exchanges();
    part->prepare_exchanges();
    const Floats out(stream, constants(static_cast<float>(comm.rank())));
    const Floats in(stream, constants(-1)), in_part(stream, constants(-1));
    for (int round = 0; round < 20; ++round) {
      Exchange of_all, of_part;
      if (comm.size() > 1) of_all = start_ring_exchange(comm, out.bytes(), in.bytes());
      if (part->size() > 1) of_part = start_ring_exchange(*part, out.bytes(), in_part.bytes());
      of_part.wait();
      of_all.wait();
    }
    if (comm.size() > 1) {
      EXPECT_EQ(in.values(), constants(static_cast<float>(comm.previous())));
    }
    if (part->size() > 1) {
      const int other = comm.rank() % 2 == 0 ? comm.rank() + 1 : comm.rank() - 1;
      EXPECT_EQ(in_part.values(), constants(static_cast<float>(other)));
    }
  });
}

// What comes next goes on without the host, however many hops wait.
TEST_P(Nccl, CollectivesDoNotWaitForOtherRanks) {
  run([](Communicator& comm) {
    cuda::Stream& stream = stream_of_this_rank();
    comm.prepare_exchanges();
    const Floats sum(stream, constants(1));
    if (comm.rank() == 0) comm.all_reduce_sum(sum.span());
    comm.barrier();
    if (comm.rank() != 0) comm.all_reduce_sum(sum.span());
    EXPECT_EQ(sum.values(), constants(static_cast<float>(comm.size())));
  });
}

// Steps that are noted become graphs (base/device/step_graph.h).
TEST_P(Nccl, CollectivesArePartsOfGraphs) {
  run([](Communicator& comm) {
    cuda::Stream& stream = stream_of_this_rank();
    comm.prepare_exchanges();
    const auto n_ranks = static_cast<float>(comm.size());
    Floats sum(stream, constants(0)), large(stream, std::vector<float>(50'001));
    for (int step = 1; step <= 6; ++step) {
      sum.set(constants(static_cast<float>(step)));
      large.set(std::vector<float>(50'001, static_cast<float>(step)));
      stream.note_step();
      for (int i = 0; i < 3; ++i) comm.all_reduce_sum(sum.span());
      comm.all_reduce_sum(large.span());
      stream.submit();
      const float want = static_cast<float>(step) * n_ranks * n_ranks * n_ranks;
      EXPECT_EQ(sum.values(), constants(want)) << "step " << step;
      EXPECT_EQ(large.values().back(), static_cast<float>(step) * n_ranks) << "step " << step;
    }
    if (comm.size() > 1) {
      EXPECT_GE(stream.steps()->n_launched(), 3);
    }
  });
}

TEST_P(Nccl, AHostThatWaitsForItsGpuGivesUpAtTheDeadline) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank waits for nobody";
  run(
      [](Communicator& comm) {
        cuda::Stream& stream = stream_of_this_rank();
        comm.prepare_exchanges();
        const Floats sum(stream, constants(1));
        stream.synchronise();
        comm.barrier();
        fake<decltype(fake_nccl_stall)>("fake_nccl_stall")(1);
        const auto error = error_of([&] {
          comm.all_reduce_sum(sum.span());
          stream.synchronise();
        });
        ASSERT_TRUE(error);
        EXPECT_TRUE(error->code() == ErrorCode::kTimeout || error->code() == ErrorCode::kNccl ||
                    error->code() == ErrorCode::kPeerFailed)
            << error->what();
        comm.abort(error->code(), error->what());
      },
      impatient());
}

TEST_P(Nccl, AHostThatWaitsForItsGpuSeesThatARankHasFailed) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank waits for nobody";
  run([](Communicator& comm) {
    cuda::Stream& stream = stream_of_this_rank();
    const Floats sum(stream, constants(1));
    comm.prepare_exchanges();
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others wait by now
      return comm.abort(ErrorCode::kIo, "a disk is full");
    }
    const auto error = error_of([&] {
      comm.all_reduce_sum(sum.span());
      stream.synchronise();
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kPeerFailed) << error->what();
  });
}

// Ranks start their transfers in different orders, and a receive stands open all the while: any
// order of NCCL's own would be a deadlock. So they go through hosts, also beside exchanges.
TEST_P(Nccl, TakesTransfersInAnyOrder) {
  run([](Communicator& comm) {
    cuda::Stream& stream = stream_of_this_rank();
    const Floats late_out(stream, constants(77)), late_in(stream, constants(-1));
    Transfer late = comm.start_receive(comm.previous(), {Traffic::kHidden}, late_in.bytes());
    std::vector<Floats> out, in;
    std::vector<Transfer> transfers;
    for (int r = 0; r < comm.size(); ++r) {
      out.emplace_back(stream, constants(static_cast<float>(10 * comm.rank() + r)));
      in.emplace_back(stream, constants(-1));
    }
    for (int i = 0; i < comm.size(); ++i) {
      const int to = (comm.rank() * 3 + i) % comm.size();
      const auto at = static_cast<std::size_t>(to);
      transfers.push_back(comm.start_send(to, {Traffic::kKeys}, out[at].bytes()));
    }
    for (int i = 0; i < comm.size(); ++i) {
      const int from = (comm.rank() * 5 + comm.size() - i) % comm.size();
      const auto at = static_cast<std::size_t>(from);
      transfers.push_back(comm.start_receive(from, {Traffic::kKeys}, in[at].bytes()));
    }
    for (Transfer& transfer : transfers) transfer.wait();
    for (int r = 0; r < comm.size(); ++r) {
      EXPECT_EQ(in[static_cast<std::size_t>(r)].values(),
                constants(static_cast<float>(10 * r + comm.rank())));
    }
    Transfer send = comm.start_send(comm.next(), {Traffic::kHidden}, late_out.bytes());
    late.wait();
    send.wait();
    EXPECT_EQ(late_in.values(), constants(77));
  });
}

TEST_P(Nccl, AnErrorOfNcclNamesRankPeerAndOperation) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank sends nothing";
  run([](Communicator& comm) {
    cuda::Stream& stream = stream_of_this_rank();
    const Floats out(stream, constants(1)), in(stream, constants(-1));
    start_ring_exchange(comm, out.bytes(), in.bytes()).wait();
    const auto error = error_of([&] {
      comm.barrier();
      if (comm.rank() == 0) fake<decltype(fake_nccl_fail_after)>("fake_nccl_fail_after")(20);
      for (int i = 0; i < 1000; ++i) start_ring_exchange(comm, out.bytes(), in.bytes()).wait();
    });
    ASSERT_TRUE(error);
    EXPECT_TRUE(comm.broken());
    if (error->code() == ErrorCode::kNccl) {
      EXPECT_THAT(error->what(), HasSubstr("keys (12000 bytes)"));
      EXPECT_THAT(error->what(), HasSubstr("remote process exited"));
      comm.abort(error->code(), error->what());
    } else {
      EXPECT_EQ(error->code(), ErrorCode::kPeerFailed) << error->what();
    }
  });
}

TEST_P(Nccl, TransfersThatStallAreTimeouts) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank sends nothing";
  run(
      [](Communicator& comm) {
        cuda::Stream& stream = stream_of_this_rank();
        const Floats out(stream, constants(1)), in(stream, constants(-1));
        start_ring_exchange(comm, out.bytes(), in.bytes()).wait();
        comm.barrier();
        fake<decltype(fake_nccl_stall)>("fake_nccl_stall")(1);
        const auto error =
            error_of([&] { start_ring_exchange(comm, out.bytes(), in.bytes()).wait(); });
        ASSERT_TRUE(error);
        // The first one to give up ends its communicators, which others may see before their own
        // deadlines.
        EXPECT_TRUE(error->code() == ErrorCode::kTimeout || error->code() == ErrorCode::kNccl)
            << error->what();
        EXPECT_THAT(error->what(), HasSubstr("keys (12000 bytes)"));
      },
      impatient());
}

TEST_P(Nccl, IsNotNeeded) {
  run_in_process(GetParam(), [](Communicator& host) {
    cuda::Stream stream(host.rank());
    const auto comm = make_gpu_communicator(host, {.stream = &stream,
                                                   .transport = GpuTransport::kNcclWherePossible,
                                                   .nccl_library = "libno_such_nccl.so.2"});
    const Floats out(stream, constants(static_cast<float>(host.rank())));
    const Floats in(stream, constants(-1));
    start_ring_exchange(*comm, out.bytes(), in.bytes()).wait();
    EXPECT_EQ(in.values(), constants(static_cast<float>(host.previous())));
  });
}

// Every other rank has no GPU; and of those that have one, the first two share theirs.
TEST_P(Nccl, IsLeftAsideWhereARankHasNoGpuOrSharesOne) {
  run_in_process(GetParam(), [](Communicator& host) {
    const bool has_gpu = host.rank() % 2 == 0;
    std::optional<cuda::Stream> stream;
    if (has_gpu) stream.emplace(host.rank() <= 2 ? 0 : host.rank());
    const auto comm = make_gpu_communicator(host, {.stream = has_gpu ? &*stream : nullptr,
                                                   .transport = GpuTransport::kNcclWherePossible,
                                                   .nccl_library = LONGHAUL_FAKE_NCCL});
    EXPECT_EQ(comm != nullptr, has_gpu);
    for (int d = 1; d <= host.size(); ++d) {
      const int to = (host.rank() + d) % host.size();
      const int from = (host.rank() + host.size() - d % host.size()) % host.size();
      std::vector<float> got;
      const auto mine = constants(static_cast<float>(host.rank()));
      if (has_gpu) {
        const Floats out(*stream, mine), in(*stream, constants(-1));
        Transfer receive = comm->start_receive(from, {Traffic::kHalo}, in.bytes());
        comm->start_send(to, {Traffic::kHalo}, out.bytes()).wait();
        receive.wait();
        got = in.values();
      } else {
        got = constants(-1);
        Transfer receive =
            host.start_receive(from, {Traffic::kHalo}, std::as_writable_bytes(std::span(got)));
        host.start_send(to, {Traffic::kHalo}, std::as_bytes(std::span(mine))).wait();
        receive.wait();
      }
      EXPECT_EQ(got, constants(static_cast<float>(from)));
    }
  });
}

LONGHAUL_INSTANTIATE_RANKS(Nccl);

}  // namespace
}  // namespace longhaul::test
