#include "tools/bench/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"

namespace longhaul::bench {
namespace {

TEST(Statistics, MeanAndStandardDeviationOfASample) {
  // Squares of the distances from 5: 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, over 7.
  const std::vector<double> values = {2, 4, 4, 4, 5, 5, 7, 9};
  EXPECT_DOUBLE_EQ(mean(values), 5);
  EXPECT_DOUBLE_EQ(standard_deviation(values), std::sqrt(32.0 / 7));
  EXPECT_EQ(standard_deviation(std::vector<double>{3}), 0);
  EXPECT_EQ(mean({}), 0);
}

TEST(Statistics, SlopeIsTheExponentOfGrowth) {
  std::vector<TimeAtLength> linear, square;
  for (const double length : {1e3, 4e3, 1.6e4, 1e6}) {
    linear.push_back({length, 3e-7 * length});
    square.push_back({length, 2e-9 * length * length});
  }
  EXPECT_NEAR(log_slope(linear), 1, 1e-12);
  EXPECT_NEAR(log_slope(square), 2, 1e-12);
  // Of two points: log(6 / 2) / log(9).
  EXPECT_NEAR(log_slope(std::vector<TimeAtLength>{{1, 2}, {9, 6}}), 0.5, 1e-12);
  EXPECT_THROW(log_slope(std::vector<TimeAtLength>{{5, 2}, {5, 6}}), Error);
  EXPECT_THROW(log_slope(std::vector<TimeAtLength>{{0, 2}, {5, 6}}), Error);
}

}  // namespace
}  // namespace longhaul::bench
