#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "base/kv_type.h"

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

// The largest, the smallest and the middle of the format's table.
TEST(Float8E4m3, HasItsPublishedValues) {
  const std::pair<int, float> values[] = {
      {0x7e, 448.0F},  {0xfe, -448.0F}, {0x38, 1.0F},    {0x39, 1.125F},   {0x77, 240.0F},
      {0x08, 0x1p-6F}, {0x07, 0x7p-9F}, {0x01, 0x1p-9F}, {0x81, -0x1p-9F}, {0x00, 0.0F}};
  for (const auto& [bits, value] : values)
    EXPECT_EQ(to_float(Float8E4m3{static_cast<std::uint8_t>(bits)}), value) << bits;
  EXPECT_TRUE(std::isnan(to_float(Float8E4m3{0x7f})));
  EXPECT_TRUE(std::isnan(to_float(Float8E4m3{0xff})));
}

TEST(Float8E4m3, EveryValueSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 256; ++bits) {
    const Float8E4m3 code{static_cast<std::uint8_t>(bits)};
    EXPECT_EQ(to_e4m3(to_float(code)).bits, code.bits) << bits;
  }
}

// Halfway between two neighbours to the one with an even code; just beside it to the nearer one.
TEST(Float8E4m3, RoundsToNearestEven) {
  for (std::uint8_t bits = 0; bits < 0x7e; ++bits) {
    const float below = to_float(Float8E4m3{bits});
    const float above = to_float(Float8E4m3{static_cast<std::uint8_t>(bits + 1)});
    const float middle = (below + above) / 2;
    for (const float sign : {1.0F, -1.0F}) {
      const auto magnitude = [&](float value) { return to_e4m3(sign * value).bits & 0x7f; };
      EXPECT_EQ(magnitude(middle), bits % 2 == 0 ? bits : bits + 1) << int{bits};
      EXPECT_EQ(magnitude(std::nextafter(middle, 0.0F)), bits);
      EXPECT_EQ(magnitude(std::nextafter(middle, 1e9F)), bits + 1);
    }
  }
}

TEST(Float8E4m3, WhatIsTooLargeBecomesTheLargest) {
  for (const float value : {449.0F, 1e30F, INFINITY}) {
    EXPECT_EQ(to_e4m3(value).bits, 0x7e);
    EXPECT_EQ(to_e4m3(-value).bits, 0xfe);
  }
}

// "caches of kivi4 and kivi4", "of kivi4 and bf16, whose tokens are quantised in groups".
TEST(KvTypes, ThatQuantiseGroupsAreNamedOnce) {
  EXPECT_EQ(grouped_types(KvType::kKivi4, KvType::kKivi4), "kivi4");
  EXPECT_EQ(grouped_types(KvType::kKivi4, KvType::kKivi2), "kivi4 and kivi2");
  EXPECT_EQ(grouped_types(KvType::kBf16, KvType::kKivi2), "kivi2");
  EXPECT_EQ(grouped_types(KvType::kKivi2, KvType::kInt8), "kivi2");
  EXPECT_EQ(grouped_types(KvType::kBf16, KvType::kInt8), "");
}

}  // namespace
}  // namespace longhaul
