#include "tools/bench/bound.h"

#include <gtest/gtest.h>

#include <vector>

namespace longhaul::bench {
namespace {

constexpr Rates kRates = {.float_flops = 100, .pair_flops = 150, .int8_ops = 400, .read_bytes = 10};

TEST(Bound, IsWhicheverTakesLonger) {
  const Bound computing = bound_of({.flops = 1000, .bytes = 50}, kRates, DType::kF32);
  EXPECT_DOUBLE_EQ(computing.seconds, 10);
  EXPECT_EQ(computing.limit, Limit::kArithmetic);
  const Bound reading = bound_of({.flops = 1000, .bytes = 300}, kRates, DType::kF32);
  EXPECT_DOUBLE_EQ(reading.seconds, 30);
  EXPECT_EQ(reading.limit, Limit::kMemory);
}

TEST(Bound, OfBf16TakesPairsWhereTheyAreFaster) {
  EXPECT_DOUBLE_EQ(bound_of({.flops = 1500}, kRates, DType::kBf16).seconds, 10);
  EXPECT_DOUBLE_EQ(Rates({.float_flops = 2, .pair_flops = 1}).flops(DType::kBf16), 2);
}

TEST(Bound, AddsProductsWithInt8ToThoseOfFloats) {
  EXPECT_DOUBLE_EQ(bound_of({.flops = 1000, .int8_ops = 800}, kRates, DType::kF32).seconds, 12);
  EXPECT_DOUBLE_EQ(Work({.flops = 1000, .int8_ops = 800}).operations(), 1800);
}

TEST(Bound, OfStepsIsTheirSum) {
  const std::vector<Work> steps = {{.flops = 1000, .bytes = 0}, {.flops = 0, .bytes = 40}};
  const Bound bound = bound_of(steps, kRates, DType::kF32);
  EXPECT_DOUBLE_EQ(bound.seconds, 14);
  EXPECT_EQ(bound.limit, Limit::kArithmetic);
}

TEST(Bound, RanksAttainTogetherWhatEachAttains) {
  const Rates sum = sum_of({1, 5, 9, 3}, {2, 4, 8, 3.5});
  EXPECT_EQ(sum.float_flops, 3);
  EXPECT_EQ(sum.pair_flops, 9);
  EXPECT_EQ(sum.int8_ops, 17);
  EXPECT_EQ(sum.read_bytes, 6.5);
}

TEST(Bound, TakesTheBetterProbe) {
  const Rates better = better_of({1, 5, 9, 3}, {2, 4, 8, 3.5});
  EXPECT_EQ(better.float_flops, 2);
  EXPECT_EQ(better.pair_flops, 5);
  EXPECT_EQ(better.int8_ops, 9);
  EXPECT_EQ(better.read_bytes, 3.5);
}

}  // namespace
}  // namespace longhaul::bench
