#include "tools/job/rank_probe.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "cluster/comm/in_process.h"
#include "tests/support/paths.h"
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
