// What NCCL takes of GPUs, by hand: 4 thread blocks with 4 MiB, 4,915,200 bytes and half a MiB,
// both ways, for each rank of a group. And copy engines: four times 4 MiB for every other rank of
// the group on the same host.
#include "partition/transfer_memory.h"

#include <gtest/gtest.h>

namespace longhaul::test {
namespace {

constexpr std::int64_t kEach = 2LL * 4 * (4'194'304 + 4'915'200 + 524'288);
constexpr std::int64_t kLanding = 4LL * 4'194'304;
using Bytes = std::vector<std::int64_t>;

// Two hosts with four GPUs each, and a rank on each GPU.
ClusterSpec eight_gpus() {
  ClusterSpec cluster = equal_cluster(8, std::int64_t{80} << 30, 4);
  for (int r = 0; r < 8; ++r) {
    cluster.ranks[static_cast<std::size_t>(r)].device = Device::kCuda;
    cluster.ranks[static_cast<std::size_t>(r)].gpu = r % 4;
  }
  return cluster;
}

std::vector<Rank> ranks(std::int64_t begin, std::int64_t end) {
  std::vector<Rank> out;
  for (const Rank rank : IdRange<Rank>({begin, end})) out.push_back(rank);
  return out;
}

Bytes bytes_of(const ClusterSpec& cluster, const std::vector<std::vector<Rank>>& rings) {
  return transfer_bytes(cluster, rings);
}

TEST(TransferMemory, IsForTheRingAndForBothRingsOfEachLink) {
  const ClusterSpec cluster = eight_gpus();
  EXPECT_EQ(bytes_of(cluster, {ranks(0, 8)}), Bytes{8 * kEach + 3 * kLanding});
  EXPECT_EQ(bytes_of(cluster, {ranks(0, 4), ranks(4, 8)}),
            (Bytes{(4 + 8) * kEach + 6 * kLanding, (4 + 8) * kEach + 6 * kLanding}));
  EXPECT_EQ(bytes_of(cluster, {ranks(0, 1), ranks(1, 3), ranks(3, 8)}),
            (Bytes{3 * kEach + 2 * kLanding, (3 + 2 + 7) * kEach + (2 + 1 + 3) * kLanding,
                   (7 + 5) * kEach + (3 + 3) * kLanding}));
}

TEST(TransferMemory, AloneNothingIsTaken) {
  EXPECT_EQ(bytes_of(eight_gpus(), {ranks(0, 1)}), Bytes{0});
}

TEST(TransferMemory, GroupsWithRanksOnCpusAreStaged) {
  ClusterSpec cluster = eight_gpus();
  cluster.ranks[5].device = Device::kCpu;
  EXPECT_EQ(bytes_of(cluster, {ranks(0, 8)}), Bytes{0});
  EXPECT_EQ(bytes_of(cluster, {ranks(0, 2), ranks(2, 4), ranks(4, 8)}),
            (Bytes{(2 + 4) * kEach + (1 + 3) * kLanding, (2 + 4) * kEach + (1 + 3) * kLanding, 0}));
}

TEST(TransferMemory, GroupsThatShareAGpuAreStaged) {
  ClusterSpec cluster = eight_gpus();
  cluster.ranks[3].gpu = 0;
  EXPECT_FALSE(may_use_nccl(cluster, ranks(0, 4)));
  EXPECT_TRUE(may_use_nccl(cluster, ranks(1, 5)));  // GPUs 0 of two hosts
  EXPECT_EQ(bytes_of(cluster, {ranks(0, 4), ranks(4, 8)}), (Bytes{0, 4 * kEach + 3 * kLanding}));
}

}  // namespace
}  // namespace longhaul::test
