#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longhaul {
namespace {

TEST(Float16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<std::uint16_t>(bits)};
    const float value = to_float(half);
    if (std::isnan(value)) continue;
    EXPECT_EQ(to_f16(value).bits, half.bits) << bits;
  }
}

TEST(Float16, RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_f16(1.0F + 0x1p-11F)), 1.0F);
  EXPECT_EQ(to_float(to_f16(1.0F + 0x3p-11F)), 1.0F + 0x1p-9F);
  EXPECT_TRUE(std::isinf(to_float(to_f16(65520.0F))));
  EXPECT_EQ(to_float(to_f16(65519.0F)), 65504.0F);
}

TEST(BFloat16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 brain{static_cast<std::uint16_t>(bits)};
    const float value = to_float(brain);
    if (std::isnan(value)) continue;
    EXPECT_EQ(to_bf16(value).bits, brain.bits) << bits;
  }
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::nanf("")))));
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_bf16(1.0F + 0x1p-8F)), 1.0F);
  EXPECT_EQ(to_float(to_bf16(1.0F + 0x3p-8F)), 1.0F + 0x1p-6F);
}

}  // namespace
}  // namespace longhaul
