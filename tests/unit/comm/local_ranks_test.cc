// A rank that was stopped before MPI connected it once held all others for ever, unnamed.
#include "cluster/comm/local_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::string_view_literals;

TEST(LocalRanks, AStoppedOneIsNamed) {
  const std::string text = describe_start(
      "vm", {{.rank = 0, .process = 71, .state = 'S'}, {.rank = 2, .process = 73, .state = 'T'}},
      3);
  EXPECT_THAT(text, AllOf(HasSubstr("on vm 2 of 3 ranks are there: "),
                          HasSubstr("rank 0 (process 71) is there and waits"),
                          HasSubstr("rank 2 (process 73) is stopped")));
  EXPECT_EQ(describe_start("vm", {}, std::nullopt), "on vm 0 ranks are there");
}

TEST(LocalRanks, ReadWhatTheKernelTells) {
  EXPECT_EQ(variable_in("A=1\0RANK=2\0B=\0"sv, "RANK"), "2");
  EXPECT_EQ(variable_in("A=1\0RANK=2\0B=\0"sv, "RAN"), "");
  EXPECT_EQ(variable_in("A=1\0XRANK=2"sv, "RANK"), "");
  EXPECT_EQ(state_in("71 (a (strange) name) T 1 2 3"), 'T');
  EXPECT_EQ(state_in("71 (a"), '?');
  EXPECT_EQ(state_in(""), '?');
}

TEST(LocalRanks, WithoutALauncherThereAreNone) {
  if (ranks_expected_here()) GTEST_SKIP() << "skipped: a launcher started this test";
  EXPECT_TRUE(ranks_on_this_host().empty());
}

}  // namespace
}  // namespace longhaul
