#include "tools/job/numa_advice.h"

#include <gtest/gtest.h>

#include <fstream>

namespace longhaul {
namespace {

namespace fs = std::filesystem;

cpu_set_t cores(std::initializer_list<int> numbers) {
  cpu_set_t set{};
  for (const int number : numbers) CPU_SET(number, &set);
  return set;
}

class NumaNodes : public testing::Test {
 protected:
  void SetUp() override {
    add("node0", "0-3,8-11\n");
    add("node1", "4-7,12-15\n");
    add("node10", "16,18\n");
    add("node2", "\n");  // memory only
    add("power", "0-15\n");
    add("nodes", "0-15\n");
  }
  void TearDown() override { fs::remove_all(folder_); }
  void add(const std::string& name, const std::string& list) const {
    fs::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "cpulist") << list;
  }
  const fs::path folder_ = fs::path(testing::TempDir()) / "numa_advice_test";
};

TEST_F(NumaNodes, AreThoseThatHaveAnyOfTheCores) {
  EXPECT_EQ(numa_nodes_of(cores({0, 1, 11}), folder_), std::vector<int>{0});
  EXPECT_EQ(numa_nodes_of(cores({3, 4}), folder_), (std::vector<int>{0, 1}));
  EXPECT_EQ(numa_nodes_of(cores({18, 12, 2}), folder_), (std::vector<int>{0, 1, 10}));
  EXPECT_EQ(numa_nodes_of(cores({17}), folder_), std::vector<int>{});
  EXPECT_EQ(numa_nodes_of(cores({0}), folder_ / "absent"), std::vector<int>{});
}

TEST_F(NumaNodes, OddListsAreNotTakenForMore) {
  add("node0", "0-9999999\n");
  add("node1", "x\n");
  add("node10", "5-\n");
  EXPECT_EQ(numa_nodes_of(cores({5}), folder_), (std::vector<int>{0, 10}));
}

TEST(NumaAdvice, IsForThreadsOnSeveralNodes) {
  EXPECT_EQ(numa_advice({}, 8), std::nullopt);
  EXPECT_EQ(numa_advice({1}, 8), std::nullopt);
  EXPECT_EQ(numa_advice({0, 1}, 1), std::nullopt);
  const auto advice = numa_advice({0, 10}, 8);
  ASSERT_TRUE(advice);
  EXPECT_NE(advice->find("8 threads have cores of 2 NUMA nodes (0, 10)"), std::string::npos);
  EXPECT_NE(advice->find("--bind-to numa"), std::string::npos);
}

}  // namespace
}  // namespace longhaul
