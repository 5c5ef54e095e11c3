// Fair splits by hand.
#include "partition/apportion.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using Parts = std::vector<std::int64_t>;
using Weights = std::vector<double>;

TEST(Apportion, ByLargestRemainder) {
  EXPECT_EQ(apportion(10, Weights{1, 1, 1}), (Parts{4, 3, 3}));
  EXPECT_EQ(apportion(10, Weights{3, 1, 0}), (Parts{8, 2, 0}));
  EXPECT_EQ(apportion(0, Weights{1, 2}), (Parts{0, 0}));
  EXPECT_EQ(apportion(1, Weights{0, 0, 5}), (Parts{0, 0, 1}));
}

TEST(Apportion, FullPartsPassTheRestOn) {
  EXPECT_EQ(apportion_within(100, Weights{1, 1, 1}, Parts{10, 1000, 1000}), (Parts{10, 45, 45}));
  EXPECT_EQ(apportion_within(100, Weights{1, 1, 2}, Parts{0, 1000, 20}), (Parts{0, 80, 20}));
  EXPECT_EQ(apportion_within(30, Weights{5, 1, 1}, Parts{10, 10, 10}), (Parts{10, 10, 10}));
  EXPECT_THROW(apportion_within(31, Weights{1, 1, 1}, Parts{10, 10, 10}), Error);
}

TEST(Apportion, LevelsLoads) {
  // 10 units of 2 on loads 0, 10, 40: levels at 15.
  EXPECT_EQ(apportion_level(10, Weights{0, 10, 40}, 2, Weights{1, 1, 1}), (Parts{8, 2, 0}));
  // Twice the speed carries twice as much.
  EXPECT_EQ(apportion_level(9, Weights{0, 0}, 1, Weights{2, 1}), (Parts{6, 3}));
  EXPECT_EQ(apportion_level(7, Weights{3}, 1, Weights{1}), (Parts{7}));
}

}  // namespace
}  // namespace longhaul
