// Groups of codes: within half a step, constant groups exact, what cannot be held.
#include "kernels/kv_quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/random.h"

namespace longhaul::test {
namespace {

struct Group {
  KvGroupRange range;
  std::vector<std::uint8_t> codes;
  double value(std::size_t i) const {
    return codes[i] * static_cast<double>(to_float(range.scale)) + to_float(range.minimum);
  }
};

Group group_of(KvType type, const std::vector<float>& values) {
  Group group{{}, std::vector<std::uint8_t>(values.size())};
  group.range = quantise(type, values, group.codes);
  return group;
}

class KvQuantise : public testing::TestWithParam<KvType> {
 protected:
  int most() const { return GetParam() == KvType::kInt8 ? 255 : 15; }
};

TEST_P(KvQuantise, EveryValueComesBackWithinHalfAStep) {
  Random random(base_seed());
  for (int round = 0; round < 2000; ++round) {
    const double size = std::pow(10.0, random.uniform(-4, 4));
    const double offset = random.chance(0.5) ? random.uniform(-3, 3) * size : 0.0;
    std::vector<float> values = random.normals(random.integer(1, 256), size);
    for (float& value : values) value += static_cast<float>(offset);
    const Group group = group_of(GetParam(), values);
    const double step = to_float(group.range.scale);
    const auto [least, largest] = std::minmax_element(values.begin(), values.end());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(group.codes[i], most());
      ASSERT_LE(std::abs(group.value(i) - values[i]), step / 2 * (1 + 1e-4) + 1e-6 * size)
          << "round " << round;
    }
    // No coarser than it must be: f16 adds a part in a thousand to range and step.
    const double range = static_cast<double>(*largest) - *least;
    const double largest_magnitude =
        std::max(std::abs(static_cast<double>(*largest)), std::abs(static_cast<double>(*least)));
    ASSERT_LE(step, (range + largest_magnitude / 1000 + 1e-7) / most() * 1.001 + 6e-8);
  }
}

TEST_P(KvQuantise, ConstantGroupsThatF16HoldsAreExact) {
  for (const float value : {0.0F, 1.0F, -1.0F, 0.375F, -1024.0F, 65504.0F, -65504.0F, 6e-8F}) {
    const float held = to_float(to_f16(value));
    const Group group = group_of(GetParam(), std::vector<float>(64, held));
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(group.value(i), held);
  }
}

TEST_P(KvQuantise, OtherConstantGroupsAreAsGoodAsF16AndBetter) {
  const Group group = group_of(GetParam(), std::vector<float>(64, 0.1F));
  for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(group.value(i), 0.1, 0.1 / 2048 / most());
}

TEST_P(KvQuantise, WhatF16CannotHoldSaturatesAndNansStay) {
  const Group large = group_of(GetParam(), {-1e9F, 0.0F, 1e9F});
  EXPECT_EQ(large.value(0), -65504.0);
  EXPECT_TRUE(std::isfinite(large.value(2)));
  EXPECT_GT(large.value(2), 65504.0);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const Group group = group_of(GetParam(), {1.0F, bad, 2.0F});
    EXPECT_TRUE(std::isnan(group.value(0)));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KvQuantise, testing::Values(KvType::kInt8, KvType::kInt4),
                         [](const testing::TestParamInfo<KvType>& type) {
                           return std::string(name_of(type.param));
                         });

// The nearest of all E4M3 numbers times the scale.
TEST(KvQuantiseFp8, EveryValueIsTheNearestNumberThatThereIs) {
  Random random(base_seed());
  std::vector<float> all;
  for (unsigned bits = 0; bits < 256; ++bits) {
    const float value = to_float(Float8E4m3{static_cast<std::uint8_t>(bits)});
    if (std::isfinite(value)) all.push_back(value);
  }
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> values =
        random.normals(random.integer(1, 64), std::pow(10.0, random.uniform(-6, 8)));
    const Group group = group_of(KvType::kFp8, values);
    const float scale = to_float(group.range.scale);
    EXPECT_EQ(group.range.minimum.bits, 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      double nearest = std::numeric_limits<double>::infinity();
      for (const float value : all)
        nearest = std::min(nearest, std::abs(static_cast<double>(value) * scale - values[i]));
      const float got = value_of_code(KvType::kFp8, group.codes[i], group.range);
      ASSERT_EQ(std::abs(static_cast<double>(got) - values[i]), nearest) << "round " << round;
    }
  }
}

TEST(KvQuantiseFp8, TheScaleIsTheSmallestPowerOfTwoThatHoldsTheLargest) {
  const auto scale = [](float largest) {
    return to_float(group_of(KvType::kFp8, {0.1F * largest, -largest}).range.scale);
  };
  EXPECT_EQ(scale(448.0F), 1.0F);
  EXPECT_EQ(scale(std::nextafter(448.0F, 1000.0F)), 2.0F);
  EXPECT_EQ(scale(224.0F), 0.5F);
  EXPECT_EQ(scale(3.0F), 0x1p-7F);
  EXPECT_EQ(scale(1e-30F), 0x1p-24F);
  EXPECT_EQ(scale(1e30F), 0x1p15F);
  EXPECT_EQ(scale(0.0F), 0.0F);
}

// So that caches may be copied, merged, saved and restored by way of floats without loss.
TEST(KvQuantiseFp8, WhatWasQuantisedOnceStays) {
  Random random(base_seed());
  for (int round = 0; round < 500; ++round) {
    const double size = std::pow(10.0, random.uniform(-8, 8));
    const Group once = group_of(KvType::kFp8, random.normals(64, size));
    std::vector<float> values;
    for (const std::uint8_t code : once.codes)
      values.push_back(value_of_code(KvType::kFp8, code, once.range));
    const Group twice = group_of(KvType::kFp8, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(value_of_code(KvType::kFp8, twice.codes[i], twice.range), values[i]);
  }
}

TEST(KvQuantiseFp8, WhatItCannotHoldSaturatesAndNansStay) {
  const Group large = group_of(KvType::kFp8, {-1e30F, 1.0F, 1e30F});
  EXPECT_EQ(value_of_code(KvType::kFp8, large.codes[0], large.range), -448.0F * 0x1p15F);
  EXPECT_EQ(value_of_code(KvType::kFp8, large.codes[2], large.range), 448.0F * 0x1p15F);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const Group group = group_of(KvType::kFp8, {1.0F, bad, 2.0F});
    EXPECT_TRUE(std::isnan(value_of_code(KvType::kFp8, group.codes[0], group.range)));
  }
}

}  // namespace
}  // namespace longhaul::test
