// Groups split from a communicator, the traffic counters, and where ranks run.
#include <gtest/gtest.h>

#include <numeric>

#include "cluster/comm/host_info.h"
#include "tests/multirank/support/ranks.h"
#include "tests/multirank/support/ring_shift.h"

namespace longhaul::test {
namespace {

class Groups : public RanksTest {};
class Counters : public RanksTest {};
class Hosts : public RanksTest {};

std::vector<int> job_ranks(const Communicator& comm) {
  std::vector<int> ranks;
  for (int r = 0; r < comm.size(); ++r) ranks.push_back(comm.job_rank_of(r));
  return ranks;
}

std::int64_t sum_of_job_ranks(Communicator& comm) {
  std::int64_t sum = comm.job_rank();
  comm.all_reduce_sum(std::span(&sum, 1));
  return sum;
}

TEST_P(Groups, SplitByColorOrderedByKey) {
  run([](Communicator& comm) {
    // Odd and even ranks apart, each in descending order.
    const auto part = comm.split(comm.rank() % 2, -comm.rank());
    std::vector<int> want;
    for (int r = comm.size() - 1; r >= 0; --r) {
      if (r % 2 == comm.rank() % 2) want.push_back(r);
    }
    EXPECT_EQ(job_ranks(*part), want);
    EXPECT_EQ(part->job_rank(), comm.rank());
    EXPECT_EQ(part->job_rank_of(part->rank()), comm.rank());
    EXPECT_EQ(sum_of_job_ranks(*part), std::accumulate(want.begin(), want.end(), std::int64_t{0}));
  });
}

TEST_P(Groups, EqualKeysKeepTheOrder) {
  run([](Communicator& comm) {
    const auto same = comm.split(7, 0);
    EXPECT_EQ(job_ranks(*same), job_ranks(comm));
    EXPECT_EQ(same->rank(), comm.rank());
  });
}

TEST_P(Groups, NegativeColorStaysOut) {
  run([](Communicator& comm) {
    const auto part = comm.split(comm.rank() == 0 ? -1 : 0, 0);
    EXPECT_EQ(part == nullptr, comm.rank() == 0);
    if (part) {
      EXPECT_EQ(part->size(), comm.size() - 1);
      part->barrier();
    }
    comm.barrier();
  });
}

TEST_P(Groups, SeveralAreUsedAtTheSameTime) {
  run([](Communicator& comm) {
    // Two stages; messages of the same size and tag are under way in both communicators at once.
    const auto stage = comm.split(comm.rank() * 2 / comm.size(), 0);
    int in_stage = -1;
    int in_job = -1;
    const int mine_in_stage = 100 + comm.rank();
    const int mine_in_job = 200 + comm.rank();
    RingTransfer first = start_ring_shift(*stage, std::as_bytes(std::span(&mine_in_stage, 1)),
                                          std::as_writable_bytes(std::span(&in_stage, 1)));
    RingTransfer second = start_ring_shift(comm, std::as_bytes(std::span(&mine_in_job, 1)),
                                           std::as_writable_bytes(std::span(&in_job, 1)));
    stage->barrier();
    comm.barrier();
    second.wait();
    first.wait();
    EXPECT_EQ(in_stage, 100 + stage->job_rank_of(stage->previous()));
    EXPECT_EQ(in_job, 200 + comm.previous());
  });
}

TEST_P(Groups, SplitAgainAndAgain) {
  run([](Communicator& comm) {
    const auto half = comm.split(comm.rank() % 2, 0);
    const auto quarter = half->split(half->rank() % 2, 0);
    const auto other = comm.split(comm.rank() % 3, 0);  // shares ranks with both
    const std::int64_t all = comm.size() * (comm.size() - 1) / 2;
    std::int64_t once =
        quarter->rank() == 0 ? sum_of_job_ranks(*quarter) : (sum_of_job_ranks(*quarter), 0);
    comm.all_reduce_sum(std::span(&once, 1));
    EXPECT_EQ(once, all);
    std::int64_t again = sum_of_job_ranks(*other);
    if (other->rank() != 0) again = 0;
    comm.all_reduce_sum(std::span(&again, 1));
    EXPECT_EQ(again, all);
  });
}

TEST_P(Groups, OutliveTheCommunicatorTheyCameFrom) {
  run([](Communicator& comm) {
    auto part = comm.split(0, 0);
    auto last = part->split(0, 0);
    part.reset();
    last->barrier();
    comm.barrier();
  });
}

TEST_P(Counters, RingShiftsCountTheirBytes) {
  run([](Communicator& comm) {
    const std::vector<std::byte> out(1000);
    std::vector<std::byte> in(1000);
    const TrafficCounters before = comm.traffic();
    for (int step = 1; step < comm.size(); ++step)
      ring_shift(comm, out, in, {Traffic::kQueries, 2});
    const TrafficCounters sent = comm.traffic() - before;
    const std::int64_t hops = comm.size() - 1;
    TrafficCounters want;
    want[Traffic::kQueries] = {.messages = hops, .bytes = 1000 * hops};
    EXPECT_EQ(sent, want);
  });
}

TEST_P(Counters, CollectivesCountWhatTheirContractsSay) {
  run([](Communicator& comm) {
    const std::int64_t others = comm.size() - 1;
    std::vector<float> small(100);
    comm.all_reduce_sum(small);
    EXPECT_EQ(comm.traffic()[Traffic::kAllReduce].bytes, others * 400);

    const std::size_t n_large = 60'000 * static_cast<std::size_t>(comm.size());
    std::vector<float> large(n_large);
    const TrafficCounters before = comm.traffic();
    comm.all_reduce_sum(large);
    const std::int64_t n_bytes = static_cast<std::int64_t>(n_large * sizeof(float));
    // Two ranks exchange everything in one round instead: the same bytes, half the latency.
    EXPECT_EQ((comm.traffic() - before)[Traffic::kAllReduce].bytes,
              2 * others * n_bytes / comm.size());

    std::vector<std::byte> all(10 * static_cast<std::size_t>(comm.size()));
    comm.all_gather(std::vector<std::byte>(10), all);
    EXPECT_EQ(comm.traffic()[Traffic::kAllGather],
              (TrafficCount{.messages = others, .bytes = others * 10}));

    comm.barrier();
    EXPECT_EQ(comm.traffic()[Traffic::kBarrier], (TrafficCount{.messages = others, .bytes = 0}));

    // A broadcast reaches each of the others once.
    std::vector<std::byte> data(50);
    comm.broadcast(data, 0);
    std::int64_t total = comm.traffic()[Traffic::kBroadcast].bytes;
    comm.all_reduce_sum(std::span(&total, 1));
    EXPECT_EQ(total, others * 50);
  });
}

TEST_P(Counters, AddUp) {
  run([](Communicator& comm) {
    const auto part = comm.split(0, 0);
    TrafficCounters total = comm.traffic();
    part->barrier();
    comm.barrier();
    total = comm.traffic();
    total += part->traffic();
    EXPECT_EQ(total[Traffic::kBarrier].messages, 2 * (comm.size() - 1));
  });
}

TEST_P(Hosts, AllRanksOfOneMachineAreTogether) {
  run([](Communicator& comm) {
    const HostInfo info = host_info(comm);
    EXPECT_EQ(info.hostname, hostname());
    EXPECT_EQ(info.n_local, comm.size());
    EXPECT_EQ(info.n_hosts, 1);
    EXPECT_EQ(info.local_rank, comm.rank());
    EXPECT_EQ(info.hostnames,
              std::vector<std::string>(static_cast<std::size_t>(comm.size()), hostname()));
  });
}

LONGHAUL_INSTANTIATE_RANKS(Groups);
LONGHAUL_INSTANTIATE_RANKS(Counters);
LONGHAUL_INSTANTIATE_RANKS(Hosts);

}  // namespace
}  // namespace longhaul::test
