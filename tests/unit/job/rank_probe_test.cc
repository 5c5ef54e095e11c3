#include "tools/job/rank_probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "base/file.h"
#include "cluster/comm/in_process.h"
#include "tests/multirank/support/faulty_communicator.h"
#include "tests/support/paths.h"
#include "tools/job/link_probe.h"
#include "tools/job/memory_probe.h"

namespace longhaul {
namespace {

TEST(AvailableBytes, ReadsTheSystemsOwnEstimate) {
  EXPECT_EQ(available_bytes_of("MemTotal:       16309304 kB\nMemFree:  1 kB\n"
                               "MemAvailable:   12345678 kB\nBuffers: 2 kB\n"),
            std::int64_t{12345678} * 1024);
  EXPECT_EQ(available_bytes_of("MemTotal: 16309304 kB\n"), std::nullopt);
  EXPECT_EQ(available_bytes_of("MemAvailable: many kB\n"), std::nullopt);
  EXPECT_EQ(available_bytes_of("MemAvailable: -5 kB\n"), std::nullopt);
  EXPECT_EQ(available_bytes_of("MemAvailable:"), std::nullopt);
}

// A limit of version 1 was not looked at, and the kernel ended the job without a word.
class ControlGroups : public testing::Test {
 protected:
  void put(const std::string& file, const std::string& text) {
    const auto path = folder_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    replace_file(path, text);
  }
  std::optional<std::int64_t> left(std::string_view groups) {
    return cgroup_bytes_left(folder_.path(), groups);
  }
  test::TemporaryFolder folder_;
};

TEST_F(ControlGroups, OfVersion1LimitTheJob) {
  put("memory/slurm/job/memory.limit_in_bytes", "125829120\n");
  put("memory/slurm/job/memory.usage_in_bytes", "50000000\n");
  put("memory/slurm/job/memory.stat", "cache 9\ntotal_inactive_file 10000000\nx 1\n");
  put("memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(left("9:cpuset:/a\n8:memory,hugetlb:/slurm/job/step\n"), 85829120);
  EXPECT_EQ(left("9:cpuset:/slurm/job\n"), std::nullopt);
}

TEST_F(ControlGroups, OfVersion2CountWhatCanBeGivenBack) {
  put("a/b/memory.max", "1000000\n");
  put("a/b/memory.current", "900000\n");
  put("a/b/memory.stat", "anon 100\ninactive_file 300000\n");
  put("a/memory.max", "max\n");
  EXPECT_EQ(left("0::/a/b\n"), 400000);
  put("memory.max", "350000\n");  // the container's own
  EXPECT_EQ(left("0::/elsewhere\n"), 350000);
}

TEST(Steadied, MakesEqualMachinesEqualAndLeavesOthersAlone) {
  EXPECT_EQ(steadied({100, 96, 110, 30}), (std::vector<double>{100, 100, 100, 30}));
  EXPECT_EQ(steadied({5}), (std::vector<double>{5}));
  EXPECT_EQ(steadied({}), (std::vector<double>{}));
  // Half of the ranks twice as fast as the others: nothing is evened out between the two kinds.
  EXPECT_EQ(steadied({100, 50, 100, 50}), (std::vector<double>{100, 50, 100, 50}));
}

TEST(LinkRounds, MeetEverybodyOnceAndNobodyTwiceAtATime) {
  for (const int n : {1, 2, 3, 4, 5, 8, 16, 17, 100}) {
    std::set<std::pair<int, int>> met;
    const auto rounds = link_rounds(n);
    for (const LinkRound& round : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        EXPECT_LT(a, b);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << n << ": " << a << " " << b;
        EXPECT_TRUE(met.insert({a, b}).second) << n << ": " << a << " " << b;
      }
    }
    for (int i = 0; i + 1 < n; ++i) EXPECT_TRUE(met.contains({i, i + 1}));
    if (n <= 16) {
      EXPECT_EQ(met.size(), static_cast<std::size_t>(n * (n - 1) / 2));
    }
    EXPECT_LE(rounds.size(), 15U);
  }
}

TEST(SetLinks, TakesTheMedianAndWritesDownTheOthers) {
  ClusterSpec cluster = equal_cluster(3, 1 << 30);
  set_links({{0, 1, 100, 0.117, 0}, {0, 2, 110, 0.118, 0}, {1, 2, 105, 0.0119, 0}}, cluster);
  EXPECT_EQ(cluster.link.between_hosts_gb_per_s, 0.117);
  EXPECT_EQ(cluster.link.between_hosts_latency_us, 105);
  ASSERT_EQ(cluster.host_links.size(), 1U);
  EXPECT_EQ(cluster.host_links[0], (HostLink{"node-1", "node-2", 0.0119, 105}));
  EXPECT_NO_THROW(cluster.validate());
}

TEST(MeasureLinks, IsTheSameOnAllRanks) {
  std::vector<std::vector<LinkFact>> found(4);
  run_in_process(4, [&](Communicator& comm) {
    found[static_cast<std::size_t>(comm.rank())] = measure_links(comm, {0, 1, 3});
  });
  ASSERT_EQ(found[2].size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const LinkFact& link = found[2][i];
    EXPECT_GT(link.gb_per_s, 0.0);
    EXPECT_LT(std::abs(link.b_ahead_s), 1);
    for (const auto& other : found) EXPECT_EQ(other[i].gb_per_s, link.gb_per_s);
  }
  EXPECT_EQ(found[2][1].rank_b, 3);
}

// A link counted as slow for the one transfer that a busy host had delayed. The delay is so long
// that what is wanted of the other two is 1 MiB in 0.3 s, also where everything is slow.
TEST(MeasureLinks, ForgetsATransferThatABusyHostDelayed) {
  constexpr std::chrono::seconds kDelay{5};
  constexpr double kMostBytes = 16 << 20;
  // Rank 0 sends ten pings, the first bytes, how many come then, and those: three times.
  const std::vector<test::Fault> faults = {{.kind = test::Fault::Kind::kDelay,
                                            .job_rank = 0,
                                            .traffic = Traffic::kOther,
                                            .nth = 12,
                                            .delay = kDelay}};
  std::vector<LinkFact> found;
  run_in_process(2, [&](Communicator& comm) {
    test::FaultyCommunicator delayed(comm, faults);
    const std::vector<LinkFact> links = measure_links(delayed, {0, 1});
    if (comm.rank() == 0) found = links;
  });
  ASSERT_EQ(found.size(), 1U);
  EXPECT_GT(found[0].gb_per_s, kMostBytes / 1e9 / static_cast<double>(kDelay.count()));
}

TEST(ThreadsFor, DividesTheCoresThatRanksShare) {
  // One process of three ranks on four cores.
  std::vector<ThreadClaim> claims(3, {"a", 7, "0-3", 4, 4});
  EXPECT_EQ(threads_for(claims, 0), 1);
  claims.resize(2);
  EXPECT_EQ(threads_for(claims, 1), 2);
  // Another host shares nothing.
  claims.push_back({"b", 7, "0-3", 4, 4});
  EXPECT_EQ(threads_for(claims, 2), 4);
}

TEST(ThreadsFor, LeavesRanksThatTheLauncherBoundTheirOwnCores) {
  const std::vector<ThreadClaim> claims = {{"a", 1, "0-3", 4, 4}, {"a", 2, "4-7", 4, 4}};
  EXPECT_EQ(threads_for(claims, 0), 4);
  EXPECT_EQ(threads_for(claims, 1), 4);
}

TEST(ThreadsFor, TakesTheUsersWordForEachProcess) {
  // OMP_NUM_THREADS=2 on 16 cores: two for each process, however many share the host.
  std::vector<ThreadClaim> claims = {{"a", 1, "0-15", 16, 2}, {"a", 2, "0-15", 16, 2}};
  EXPECT_EQ(threads_for(claims, 0), 2);
  // Of one process' ranks each gets its part, at least one.
  claims.assign(4, {"a", 1, "0-15", 16, 2});
  EXPECT_EQ(threads_for(claims, 3), 1);
}

TEST(ProbeCluster, FindsTheSameClusterOnAllRanks) {
  std::vector<ClusterSpec> found(3);
  run_in_process(3, [&](Communicator& comm) {
    const ProbedCluster probed =
        probe_cluster(comm, {.measure_speed = comm.size() > 1, .n_threads = 1});
    EXPECT_EQ(probed.n_threads, 1);
    found[static_cast<std::size_t>(comm.rank())] = probed.cluster;
  });
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[0], found[2]);
  ASSERT_EQ(found[0].n_ranks(), 3);
  EXPECT_NO_THROW(found[0].validate());
  EXPECT_TRUE(found[0].speeds_known);
  EXPECT_EQ(found[0].ranks[0].host, found[0].ranks[2].host);
  EXPECT_EQ(found[0].ranks[0].memory_bytes, found[0].ranks[2].memory_bytes);
}

}  // namespace
}  // namespace longhaul
