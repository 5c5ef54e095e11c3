// Clusters from TOML: the example files, and errors that say where.
#include "partition/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/paths.h"
#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::kGiB;
using testing::HasSubstr;

ClusterSpec read_cluster(const char* name) {
  const auto path = test::source_path("tests/unit/partition/clusters") / name;
  return parse_cluster_toml(read_file(path, 1 << 20), name);
}

std::string error_of(std::string_view toml) {
  try {
    parse_cluster_toml(toml, "c.toml");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ClusterSpec, ReadsEqualNodes) {
  const ClusterSpec cluster = read_cluster("equal.toml");
  ASSERT_EQ(cluster.n_ranks(), 8);
  EXPECT_EQ(cluster.ranks[3].host, "node-0");
  EXPECT_EQ(cluster.ranks[4].host, "node-1");
  EXPECT_EQ(cluster.ranks[7].memory_bytes, 80 * kGiB);
  EXPECT_EQ(cluster.ranks[7].gflops, 2000.0);
  EXPECT_EQ(cluster.link.between_hosts_gb_per_s, 12.0);
  EXPECT_TRUE(cluster.speeds_known);
}

TEST(ClusterSpec, ReadsLopsidedNodes) {
  const ClusterSpec cluster = read_cluster("lopsided.toml");
  ASSERT_EQ(cluster.n_ranks(), 3);
  EXPECT_EQ(cluster.ranks[1].memory_bytes, 32 * kGiB);
  EXPECT_EQ(cluster.ranks[2].host, "rich");
  EXPECT_EQ(cluster.usable_bytes(Rank{2}), 1024 * kGiB - (1024 * kGiB + 9) / 10);
}

TEST(ClusterSpec, ErrorsSayLineKeyAndReason) {
  EXPECT_THAT(error_of("[[node]]\nmemory = \"1G\"\nmemroy = 3\n"),
              HasSubstr("c.toml: line 3: node 0: unknown key \"memroy\""));
  EXPECT_THAT(error_of("[[node]]\nranks = 2\n"), HasSubstr("line 1: node 0: memory is missing"));
  EXPECT_THAT(error_of("[[node]]\nmemory = \"much\"\n"),
              HasSubstr("line 2: node 0: memory: \"much\""));
  EXPECT_THAT(error_of("[[node]]\nmemory = \"1G\"\nranks = 0\n"),
              HasSubstr("ranks is 0, must be 1"));
  EXPECT_THAT(error_of("[[node]]\nmemory = \"1G\"\ngflops = -2.0\n"), HasSubstr("must be 10^-6"));
  EXPECT_THAT(error_of("[[node]]\nmemory = \"1G\"\ngb_per_s = nan\n"), HasSubstr("must be 10^-6"));
  EXPECT_THAT(error_of("[[node]\n"), HasSubstr("c.toml: line 1"));
  EXPECT_THAT(error_of("headroom = 0.1\n"), HasSubstr("no nodes"));
  EXPECT_THAT(error_of("headroom = 1.5\n[[node]]\nmemory = \"1G\"\n"), HasSubstr("less than 1"));
  EXPECT_THAT(error_of("link = 3\n[[node]]\nmemory = \"1G\"\n"), HasSubstr("[link]"));
  EXPECT_THAT(error_of("[link]\nspeed = 3\n[[node]]\nmemory = \"1G\"\n"),
              HasSubstr("line 2: link: unknown key \"speed\""));
}

TEST(ClusterSpec, ReadsLinksBetweenSingleHosts) {
  const std::string nodes = R"(
    [[node]]
    name = "a"
    count = 3
    memory = "1G"
    attention_gflops = 200.0
  )";
  const ClusterSpec cluster = parse_cluster_toml(
      nodes + "[[host_link]]\nhosts = [\"a-2\", \"a-0\"]\ngb_per_s = 0.1\n", "c.toml");
  EXPECT_EQ(cluster.ranks[0].attention_speed(), 200);
  EXPECT_EQ(cluster.wire("a-0", "a-2").gb_per_s, 0.1);
  EXPECT_EQ(cluster.wire("a-0", "a-2").latency_us, LinkSpec{}.between_hosts_latency_us);
  EXPECT_EQ(cluster.wire("a-0", "a-1").gb_per_s, LinkSpec{}.between_hosts_gb_per_s);
  EXPECT_EQ(cluster.wire("a-1", "a-1").gb_per_s, LinkSpec{}.within_host_gb_per_s);
  EXPECT_EQ(parse_cluster_toml(cluster_to_toml(cluster), "back.toml").host_links,
            cluster.host_links);
  EXPECT_THAT(error_of(nodes + "[[host_link]]\nhosts = [\"a-2\", \"b\"]\n"),
              HasSubstr("names b, which no [[node]] does"));
  EXPECT_THAT(error_of(nodes + "[[host_link]]\nhosts = [\"a-2\"]\n"),
              HasSubstr("hosts must be two names"));
  EXPECT_THAT(error_of(nodes + "[[host_link]]\nhosts = [\"a-1\", \"a-1\"]\n"),
              HasSubstr("one host twice"));
}

TEST(ClusterSpec, ErrorsOfNumbersSayWhatIsRight) {
  const std::string node = "[[node]]\nmemory = ";
  EXPECT_THAT(error_of(node + "\"1G\"\ngflops = 1e30\n"),
              HasSubstr("line 3: node 0: gflops is 1e+30, must be 10^-6 to 10^12"));
  EXPECT_THAT(error_of(node + "\"1G\"\ngb_per_s = 1e-300\n"),
              HasSubstr("gb_per_s is 1e-300, must be 10^-6 to 10^12"));
  EXPECT_THAT(error_of(node + "16\n"), HasSubstr("line 2: node 0: memory 16 is 16 B: too little "
                                                 "for any rank; did you mean 16G?"));
  EXPECT_THAT(error_of(node + "\"64 KiB\"\n"), HasSubstr("64 KiB is 64.0 KiB: too little"));
  EXPECT_THAT(error_of(node + "16.5\n"), HasSubstr("expected a size; write, say, \"64 GiB\""));
  EXPECT_THAT(error_of(node + "\"1G\"\nranks = 1048577\n"), HasSubstr("must be 1 to 1048576"));
  EXPECT_THAT(error_of(node + "\"1G\"\nranks = 1048576\ncount = 2\n"),
              HasSubstr("c.toml: line 1: node 0: with it there are more than 1048576 ranks"));
}

// They were one host, with the memory of both, without a word.
TEST(ClusterSpec, RefusesTwoNodesOfOneNameUnlessTheyAreMeantToBeOne) {
  const std::string a = "[[node]]\nname = \"a\"\nmemory = \"1G\"\n";
  EXPECT_THAT(error_of(a + a), HasSubstr("c.toml: line 4: node 1: the node in line 1 is called a, "
                                         "too: give this one another name, or"));
  EXPECT_THAT(error_of("[[node]]\nname = \"b\"\ncount = 2\nmemory = \"1G\"\n"
                       "[[node]]\nname = \"b-1\"\nmemory = \"1G\"\n"),
              HasSubstr("called b-1, too"));
  EXPECT_THAT(error_of("[[node]]\nmemory = \"1G\"\nsame_host = true\n"),
              HasSubstr("no node before this one is called node0"));
  EXPECT_EQ(parse_cluster_toml(a + a + "same_host = true\n", "c.toml").ranks[1].host, "a");
}

// The first one counted, without a word.
TEST(ClusterSpec, RefusesTwoLinksBetweenTheSameHosts) {
  const std::string text =
      "[[node]]\nname = \"a\"\ncount = 2\nmemory = \"1G\"\n"
      "[[host_link]]\nhosts = [\"a-0\", \"a-1\"]\ngb_per_s = 0.1\n"
      "[[host_link]]\nhosts = [\"a-1\", \"a-0\"]\ngb_per_s = 0.2\n";
  EXPECT_THAT(error_of(text), HasSubstr("c.toml: line 8: host_link: a-1 and a-0 have one already, "
                                        "in line 5; remove one of the two"));
}

TEST(ClusterSpec, ComesBackFromItsOwnText) {
  for (const char* name : {"equal.toml", "lopsided.toml"}) {
    ClusterSpec cluster = read_cluster(name);
    cluster.ranks[0].gflops = 1000.0 / 3;
    EXPECT_EQ(parse_cluster_toml(cluster_to_toml(cluster), "back.toml"), cluster) << name;
  }
  ClusterSpec gpus = equal_cluster(4, kGiB, 2);
  for (std::size_t r = 0; r < 4; ++r) {
    gpus.ranks[r].device = Device::kCuda;
    gpus.ranks[r].gpu = static_cast<int>(r % 2);
  }
  gpus.speeds_known = true;
  EXPECT_EQ(parse_cluster_toml(cluster_to_toml(gpus), "back.toml"), gpus);
}

// Six ranks on four GPUs: two of them are shared. And ranks on the CPUs of the same host.
TEST(ClusterSpec, ReadsNodesWithGpus) {
  const ClusterSpec cluster = parse_cluster_toml(R"(
    [[node]]
    name = "a"
    gpus = 4
    gpu_memory = "80 GiB"
    ranks = 6
    gflops = 200000.0
    gb_per_s = 1500.0
    [[node]]
    name = "a"
    memory = "512 GiB"
    ranks = 2
  )",
                                                 "c.toml");
  ASSERT_EQ(cluster.n_ranks(), 8);
  EXPECT_TRUE(cluster.has_gpus());
  EXPECT_FALSE(cluster.speeds_known);
  const std::vector<std::int64_t> memory = {40, 40, 80, 80, 40, 40, 256, 256};
  const std::vector<std::string> devices = {"GPU 0", "GPU 1", "GPU 2", "GPU 3",
                                            "GPU 0", "GPU 1", "CPU",   "CPU"};
  for (std::size_t r = 0; r < cluster.ranks.size(); ++r) {
    EXPECT_EQ(cluster.ranks[r].memory_bytes, memory[r] * kGiB) << "rank " << r;
    EXPECT_EQ(device_name(cluster.ranks[r]), devices[r]) << "rank " << r;
    EXPECT_EQ(cluster.ranks[r].host, "a");
  }
  EXPECT_EQ(cluster.ranks[5].gflops, 200000.0);
  EXPECT_EQ(cluster.ranks[7].gflops, RankSpec().gflops);
  const ClusterSpec plain = parse_cluster_toml("[[node]]\ngpus = 2\ngpu_memory = \"1G\"\n", "c");
  ASSERT_EQ(plain.n_ranks(), 2);
  EXPECT_EQ(plain.ranks[1].gpu, 1);
  EXPECT_EQ(plain.ranks[1].gflops, kDefaultGpuGflops);
  EXPECT_THAT(error_of("[[node]]\nmemory = \"1G\"\ngpu_memory = \"1G\"\n"),
              HasSubstr("line 3: node 0: gpu_memory without gpus"));
  EXPECT_THAT(error_of("[[node]]\ngpus = 1\nmemory = \"1G\"\n"),
              HasSubstr("line 3: node 0: memory of a node with gpus"));
  EXPECT_THAT(error_of("[[node]]\ngpus = 1\n"), HasSubstr("gpu_memory is missing"));
}

}  // namespace
}  // namespace longhaul
