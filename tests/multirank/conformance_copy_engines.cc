// What is particular to exchanges by copy engines: landing areas that are used again and again,
// hosts that look away, NCCL beside them, and waits that end when a rank fails.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/device/landing_memory.h"
#include "cluster/comm/gpu_communicator.h"
#include "cluster/comm/gpu_peers.h"
#include "cluster/comm/in_process.h"
#include "tests/multirank/support/fake_gpus.h"
#include "tests/multirank/support/fake_nccl_calls.h"
#include "tests/multirank/support/gpu_values.h"
#include "tests/multirank/support/ranks.h"
#include "tests/multirank/support/ranks_on_gpus.h"
#include "tests/multirank/support/ring_shift.h"
#include "tests/support/random.h"

namespace longhaul::test {
namespace {

using Numbers = GpuValues<std::int32_t>;
using Body = std::function<void(Communicator& comm, cuda::Stream& stream)>;

constexpr std::size_t kSlotBytes = 512;

// The made-up GPUs end the program where something waits without end.
class CopyEngines : public RanksTest {
 protected:
  void SetUp() override {
    set_fake_gpus(64);
    set_fake_gpus_patience(std::chrono::seconds(20));
  }
  void TearDown() override { fake<decltype(fake_nccl_stall)>("fake_nccl_stall")(0); }

  // Ranks of `n_islands` hosts, in turn.
  void copy(int n_islands, const Body& body,
            const CommunicatorConfig& config = test_communicator_config()) {
    run_in_process(
        GetParam(),
        [&](Communicator& host) {
          cuda::Stream stream(host.rank());
          GpuCommunicatorConfig gpu = gpu_communicator_config(stream);
          gpu.transport = GpuTransport::kCopyEnginesWherePossible;
          gpu.copy_engines = {.slot_bytes = kSlotBytes, .island = host.rank() % n_islands};
          const auto comm = make_gpu_communicator(host, gpu);
          body(*comm, stream);
        },
        config);
  }
};

std::vector<std::int32_t> numbers(int seed, std::size_t n) {
  std::vector<std::int32_t> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = seed * 7919 + static_cast<std::int32_t>(i) * 31;
  return out;
}

std::optional<Error> error_in(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

struct Part {
  int from = 0;
  int to = 0;
  std::size_t n = 0;  // numbers
  int seed = 0;
};
constexpr std::size_t kMostNumbers = 1500;  // 12 slots

// The same on all ranks. Some exchanges leave ranks out, some parts have nothing.
std::vector<std::vector<Part>> random_schedule(int n_ranks, int n_exchanges) {
  Random random(base_seed() * 100 + static_cast<std::uint64_t>(n_ranks));
  std::vector<std::vector<Part>> schedule(static_cast<std::size_t>(n_exchanges));
  int seed = 0;
  for (auto& exchange : schedule) {
    const std::int64_t n_parts = random.integer(1, 2 * n_ranks);
    for (std::int64_t i = 0; i < n_parts; ++i) {
      const int from = static_cast<int>(random.integer(0, n_ranks - 1));
      const int to = (from + static_cast<int>(random.integer(1, n_ranks - 1))) % n_ranks;
      const auto n =
          static_cast<std::size_t>(random.chance(0.1) ? 0 : random.integer(1, kMostNumbers));
      exchange.push_back({from, to, n, ++seed});
    }
  }
  return schedule;
}

// Several exchanges are under way; buffers are used again behind readers that are only queued.
void run_schedule(Communicator& comm, cuda::Stream& stream,
                  const std::vector<std::vector<Part>>& schedule) {
  constexpr std::size_t kUnderWay = 3;
  const auto most_parts = static_cast<std::size_t>(2 * comm.size());
  std::vector<std::vector<Numbers>> arriving(kUnderWay + 1);
  for (auto& buffers : arriving) {
    for (std::size_t i = 0; i < most_parts; ++i)
      buffers.emplace_back(stream, std::vector<std::int32_t>(kMostNumbers, -1));
  }
  std::vector<Numbers> sent, read;
  std::vector<Part> received;
  for (const auto& exchange : schedule) {
    for (const Part& part : exchange) {
      if (part.from == comm.rank()) sent.emplace_back(stream, numbers(part.seed, part.n));
      if (part.to != comm.rank()) continue;
      read.emplace_back(stream, std::vector<std::int32_t>(part.n, -1));
      received.push_back(part);
    }
  }
  comm.prepare_exchanges();

  std::deque<std::pair<std::size_t, Exchange>> under_way;
  std::size_t n_sent = 0;
  std::size_t n_read = 0;
  const auto finish_one = [&] {
    auto& [number, exchange] = under_way.front();
    exchange.wait();
    for (std::size_t i = 0; i < exchange.receives.size(); ++i) {
      const auto to = read[n_read++].bytes();
      cuda::copy_on_device(stream, to.data(), arriving[number % arriving.size()][i].bytes().data(),
                           to.size());
    }
    under_way.pop_front();
  };
  for (std::size_t e = 0; e < schedule.size(); ++e) {
    if (under_way.size() == kUnderWay) finish_one();
    std::vector<Incoming> in;
    std::vector<Outgoing> out;
    for (const Part& part : schedule[e]) {
      if (part.from == comm.rank()) out.push_back({part.to, sent[n_sent++].bytes()});
      if (part.to != comm.rank()) continue;
      const Numbers& buffer = arriving[e % arriving.size()][in.size()];
      in.push_back({part.from, buffer.bytes().first(part.n * sizeof(std::int32_t))});
    }
    under_way.emplace_back(e, comm.start_exchange({Traffic::kHalo}, in, out));
  }
  while (!under_way.empty()) finish_one();
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].values(), numbers(received[i].seed, received[i].n))
        << "part " << i << " of rank " << comm.rank() << ", seed " << base_seed();
  }
}

TEST_P(CopyEngines, KeepTheOrderOfRandomSchedules) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank sends nothing";
  const auto schedule = random_schedule(GetParam(), 12);
  copy(/*n_islands=*/1,
       [&](Communicator& comm, cuda::Stream& stream) { run_schedule(comm, stream, schedule); });
}

TEST_P(CopyEngines, GoBesideNcclBetweenHosts) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank sends nothing";
  const auto schedule = random_schedule(GetParam(), 12);
  copy(/*n_islands=*/2,
       [&](Communicator& comm, cuda::Stream& stream) { run_schedule(comm, stream, schedule); });
}

// NCCL brings nothing, and the exchange is over nevertheless. In one host's group.
TEST_P(CopyEngines, TakeNoPartOfNccl) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank sends nothing";
  copy(1, [](Communicator& comm, cuda::Stream& stream) {
    const Numbers out(stream, numbers(comm.rank(), kMostNumbers));
    const Numbers in(stream, numbers(-1, kMostNumbers));
    comm.prepare_exchanges();
    comm.barrier();
    fake<decltype(fake_nccl_stall)>("fake_nccl_stall")(1);
    start_ring_exchange(comm, out.bytes(), in.bytes()).wait();
    comm.barrier();
    fake<decltype(fake_nccl_stall)>("fake_nccl_stall")(0);
    EXPECT_EQ(in.values(), numbers(comm.previous(), kMostNumbers));
  });
}

// Rank 0 has queued its exchanges and looks at nothing until the others have theirs.
TEST_P(CopyEngines, NeedNoHostOnceTheyAreQueued) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank sends nothing";
  std::atomic<int> n_done = 0;
  copy(1, [&](Communicator& comm, cuda::Stream& stream) {
    constexpr int kHops = 3;
    const Numbers out(stream, numbers(comm.rank(), kMostNumbers));
    std::vector<Numbers> in;
    for (int hop = 0; hop < kHops; ++hop) in.emplace_back(stream, numbers(-1, kMostNumbers));
    comm.prepare_exchanges();
    std::vector<Exchange> exchanges;
    for (const Numbers& buffer : in)
      exchanges.push_back(start_ring_exchange(comm, out.bytes(), buffer.bytes()));
    const Deadline deadline = deadline_in(comm.default_deadline());
    while (comm.rank() == 0 && n_done < comm.size() - 1 && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (comm.rank() == 0) {
      EXPECT_EQ(n_done, comm.size() - 1);
    }
    for (Exchange& exchange : exchanges) exchange.wait();
    ++n_done;
    for (const Numbers& buffer : in)
      EXPECT_EQ(buffer.values(), numbers(comm.previous(), kMostNumbers));
  });
}

TEST_P(CopyEngines, ARankThatDoesNotComeIsATimeout) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank waits for nobody";
  CommunicatorConfig impatient;
  impatient.default_deadline = std::chrono::milliseconds(1500);
  std::atomic<int> n_left = 0;
  copy(
      1,
      [&](Communicator& comm, cuda::Stream& stream) {
        const Numbers out(stream, numbers(comm.rank(), kMostNumbers));
        const Numbers in(stream, numbers(-1, kMostNumbers));
        comm.prepare_exchanges();
        if (comm.rank() == 0) {
          while (n_left < comm.size() - 1) std::this_thread::yield();
          return;
        }
        const Incoming from{0, in.bytes()};
        const Outgoing to{0, out.bytes()};
        const auto error = error_in([&] {
          comm.start_exchange({Traffic::kHalo}, {&from, 1}, {&to, 1}).wait();
        });
        ++n_left;
        ASSERT_TRUE(error);
        // The first one to give up tells the others at once.
        EXPECT_TRUE(error->code() == ErrorCode::kTimeout || error->code() == ErrorCode::kNccl)
            << error->what();
        EXPECT_TRUE(comm.broken());
      },
      impatient);
}

// All ranks send to rank 0, which sends nothing, and has not read what was there before.
TEST_P(CopyEngines, WriteBehindQueuedReaders) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank sends nothing";
  copy(1, [](Communicator& comm, cuda::Stream& stream) {
    const auto old = numbers(77, kMostNumbers);
    const auto nothing = numbers(-1, kMostNumbers);
    const Numbers out(stream, numbers(comm.rank(), kMostNumbers));
    std::vector<Numbers> arriving, read;
    for (int i = 0; i < comm.size(); ++i) arriving.emplace_back(stream, old);
    for (int i = 0; i < 100; ++i) read.emplace_back(stream, nothing);
    comm.prepare_exchanges();
    std::vector<Incoming> in;
    std::vector<Outgoing> sent;
    if (comm.rank() != 0) sent.push_back({0, out.bytes()});
    for (int r = 1; r < comm.size() && comm.rank() == 0; ++r)
      in.push_back({r, arriving[static_cast<std::size_t>(r)].bytes()});
    stream.synchronise();
    for (const Numbers& copy : read)
      cuda::copy_on_device(stream, copy.bytes().data(), arriving[1].bytes().data(),
                           copy.bytes().size());
    comm.start_exchange({Traffic::kHalo}, in, sent).wait();
    for (const Numbers& copy : read) EXPECT_EQ(copy.values(), old);
    for (std::size_t r = 1; r <= in.size(); ++r)
      EXPECT_EQ(arriving[r].values(), numbers(static_cast<int>(r), kMostNumbers));
  });
}

// Its streams are let go where they stood, write over what nobody has read, and say that it has
// arrived. Its host says nothing but by the words.
TEST_P(CopyEngines, WhatComesFromARankThatGaveUpIsNotBelieved) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank waits for nobody";
  std::atomic<int> n_ready = 0;
  std::atomic<bool> has_given_up = false;
  copy(1, [&](Communicator& comm, cuda::Stream& stream) {
    const Numbers out(stream, numbers(comm.rank(), kMostNumbers));
    const Numbers in(stream, numbers(-1, kMostNumbers));
    comm.prepare_exchanges();
    start_ring_exchange(comm, out.bytes(), in.bytes()).wait();
    EXPECT_EQ(in.values(), numbers(comm.previous(), kMostNumbers));
    ++n_ready;
    while (n_ready < comm.size()) std::this_thread::yield();
    if (comm.rank() == 1) {
      static_cast<void>(start_ring_exchange(comm, out.bytes(), in.bytes()));
      EXPECT_TRUE(comm.broken());
      has_given_up = true;
      return;
    }
    while (!has_given_up) std::this_thread::yield();
    if (comm.previous() != 1 && comm.next() != 1) return;
    const auto error = error_in([&] { start_ring_exchange(comm, out.bytes(), in.bytes()).wait(); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kNccl) << error->what();
    EXPECT_TRUE(comm.broken());
  });
}

TEST_P(CopyEngines, EndWhenARankFails) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank waits for nobody";
  copy(1, [](Communicator& comm, cuda::Stream& stream) {
    const Numbers out(stream, numbers(comm.rank(), kMostNumbers));
    const Numbers in(stream, numbers(-1, kMostNumbers));
    comm.prepare_exchanges();
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others wait by now
      return comm.abort(ErrorCode::kIo, "a disk is full");
    }
    const auto error = error_in([&] {
      for (;;) start_ring_exchange(comm, out.bytes(), in.bytes()).wait();
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kPeerFailed) << error->what();
  });
}

// Slots for each of the others, of which plans know (partition/transfer_memory.h).
TEST_P(CopyEngines, TakeTheMemoryOfTheirSlots) {
  copy(1, [](Communicator& comm, cuda::Stream&) {
    const auto free_bytes = [&] {
      comm.barrier();
      const std::size_t bytes = cuda::device_info(comm.rank()).free_bytes;
      comm.barrier();
      return static_cast<double>(bytes);
    };
    const double before = free_bytes();
    comm.prepare_exchanges();
    const double taken = before - free_bytes();
    const double n = comm.size();
    const double slots = n * (n - 1) * static_cast<double>(kLandingSlots * kSlotBytes);
    EXPECT_GE(taken, slots);
    EXPECT_LE(taken, slots + n * 4096);  // greetings of NCCL, and what lies between pieces
  });
}

LONGHAUL_INSTANTIATE_RANKS(CopyEngines);

// In one process a handle names the memory itself, on made-up GPUs.
TEST(GpuPeers, OpenMemoryOfOtherProcesses) {
  set_fake_gpus(64);
  cuda::Stream stream(0);
  const cuda::SharedBuffer owned(1000);
  cuda::MemoryTicket ticket = owned.ticket();
  EXPECT_EQ(cuda::OpenedBuffer(ticket).data(), owned.data());
  ++ticket.process;
  cuda::OpenedBuffer opened(ticket);
  EXPECT_EQ(opened.data(), owned.data());
  const Numbers values(stream, numbers(1, 250)), got(stream, numbers(2, 250));
  cuda::copy_on_device(stream, opened.data(), values.bytes().data(), 1000);
  cuda::copy_on_device(stream, got.bytes().data(), owned.data(), 1000);
  EXPECT_EQ(got.values(), numbers(1, 250));
}

}  // namespace
}  // namespace longhaul::test
