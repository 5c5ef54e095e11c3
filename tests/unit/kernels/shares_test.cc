#include "kernels/cpu/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/threads.h"

namespace longhaul {
namespace {

using testing::Each;

// The numbers that a thread gets until none is left; what goes on is shown as +0.5.
std::vector<double> rest_of(Shares& shares, int thread) {
  std::vector<double> out;
  while (const auto part = shares.next(thread))
    out.push_back(static_cast<double>(part->number) + (part->goes_on ? 0.5 : 0.0));
  return out;
}

TEST(Shares, OneThreadGetsAllInOrder) {
  Shares shares(4, 1);
  EXPECT_EQ(rest_of(shares, 0), (std::vector<double>{0.5, 1.5, 2.5, 3}));
  EXPECT_FALSE(shares.next(0));
}

TEST(Shares, AThreadThatIsDoneHelpsOthersFromTheirEnds) {
  Shares shares(9, 3);  // 0 to 2, 3 to 5, 6 to 8
  EXPECT_EQ(shares.next(2)->number, 6);
  EXPECT_EQ(shares.next(0)->number, 0);
  EXPECT_EQ(rest_of(shares, 1), (std::vector<double>{3.5, 4.5, 5, 8, 7, 2, 1}));
  EXPECT_FALSE(shares.next(0));
  EXPECT_FALSE(shares.next(2));
}

TEST(Shares, FewerNumbersThanThreads) {
  Shares shares(2, 5);
  EXPECT_EQ(rest_of(shares, 0).size(), 2U);
  Shares none(0, 3);
  EXPECT_FALSE(none.next(1));
}

TEST(Shares, GivesEachNumberOnce) {
  constexpr int kThreads = 4;
  std::vector<int> times(20'000);
  Shares shares(static_cast<std::int64_t>(times.size()), kThreads);
  std::vector<std::vector<std::int64_t>> taken(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      while (const auto part = shares.next(thread))
        taken[static_cast<std::size_t>(thread)].push_back(part->number);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& numbers : taken) {
    for (const std::int64_t number : numbers) ++times[static_cast<std::size_t>(number)];
  }
  EXPECT_THAT(times, Each(1));
}

class ParallelForNeighbours : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_kernel_threads(GetParam()); }
  void TearDown() override { set_kernel_threads(0); }
};

TEST_P(ParallelForNeighbours, RunsEachTaskOnce) {
  for (const std::int64_t n_tasks : {0, 1, 2, 3, 50, 1000}) {
    std::vector<int> times(static_cast<std::size_t>(n_tasks));
    parallel_for_neighbours(n_tasks, [&](std::int64_t i, bool goes_on) {
      ++times[static_cast<std::size_t>(i)];
      EXPECT_FALSE(goes_on && i + 1 == n_tasks);
    });
    EXPECT_THAT(times, Each(1));
  }
}

TEST_P(ParallelForNeighbours, ThrowsWhatATaskThrows) {
  const auto run = [] {
    parallel_for_neighbours(40, [](std::int64_t i, bool) {
      if (i == 17) throw std::runtime_error("17");
    });
  };
  EXPECT_THROW(run(), std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelForNeighbours, testing::Values(1, 2, 3));

}  // namespace
}  // namespace longhaul
