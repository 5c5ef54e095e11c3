// Weighted round-robin: hand values, exactness, agreement of the three functions.
#include "partition/homes.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longhaul {
namespace {

Home home_of(std::vector<std::int64_t> weights) {
  Home home;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    home.shares.push_back({Rank{static_cast<std::int64_t>(10 + i)}, weights[i]});
  }
  return home;
}

std::vector<std::int64_t> first_ranks(const Home& home, std::int64_t n) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t b = 0; b < n; ++b) ranks.push_back(home_of_block(home, b).value - 10);
  return ranks;
}

TEST(Homes, OneHomeHasAllBlocks) {
  const Home home = home_of({7});
  EXPECT_EQ(first_ranks(home, 4), (std::vector<std::int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(blocks_at(home, Rank{10}, 1000), 1000);
  EXPECT_EQ(blocks_at(home, Rank{3}, 1000), 0);
}

TEST(Homes, EqualWeightsTakeTurns) {
  EXPECT_EQ(first_ranks(home_of({1, 1}), 6), (std::vector<std::int64_t>{0, 1, 0, 1, 0, 1}));
}

TEST(Homes, TheExampleOfTheHeader) {
  EXPECT_EQ(first_ranks(home_of({2, 1, 1}), 8),
            (std::vector<std::int64_t>{0, 1, 0, 2, 0, 1, 0, 2}));
}

TEST(Homes, APrefixOfTheSumOfWeightsIsExact) {
  const Home home = home_of({5, 1, 16384, 3, 777});
  EXPECT_EQ(blocks_by_share(home, 5 + 1 + 16384 + 3 + 777),
            (std::vector<std::int64_t>{5, 1, 16384, 3, 777}));
}

TEST(Homes, CountsAgreeWithSingleBlocksAndStayProportional) {
  const Home home = home_of({5, 1, 16, 3, 7});
  std::vector<std::int64_t> counted(5, 0);
  for (std::int64_t n = 1; n <= 500; ++n) {
    ++counted[static_cast<std::size_t>(home_of_block(home, n - 1).value - 10)];
    ASSERT_EQ(blocks_by_share(home, n), counted) << n;
    for (std::size_t i = 0; i < 5; ++i) {
      const double ideal = static_cast<double>(n * home.shares[i].weight) / 32.0;
      ASSERT_LT(std::abs(static_cast<double>(counted[i]) - ideal), 2.0) << n << " " << i;
    }
  }
}

TEST(Homes, NoWindowHoldsMoreThanTheBound) {
  const Home home = home_of({5, 1, 16, 3});
  for (const std::int64_t n : {1, 2, 7, 30}) {
    const auto bound = max_blocks_in_window(home, n);
    for (std::int64_t begin = 0; begin < 100; ++begin) {
      const auto before = blocks_by_share(home, begin);
      const auto after = blocks_by_share(home, begin + n);
      for (std::size_t i = 0; i < bound.size(); ++i) ASSERT_LE(after[i] - before[i], bound[i]);
    }
  }
}

TEST(Homes, NothingOverflowsAtTheLimits) {
  const Home home = home_of({Home::kMaxWeight / 2, Home::kMaxWeight / 2});
  EXPECT_EQ(blocks_by_share(home, std::int64_t{1} << 31),
            (std::vector<std::int64_t>{std::int64_t{1} << 30, std::int64_t{1} << 30}));
}

}  // namespace
}  // namespace longhaul
