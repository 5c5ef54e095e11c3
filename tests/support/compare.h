// Comparison of tensors with their reference: equal infinities and NaNs, then each element, then
// the cosine over all.
#pragma once
#include <gtest/gtest.h>

#include <span>

#include "tests/support/tolerance.h"

namespace longhaul::test {

// EXPECT_TRUE(close(got, want, tolerance)) names the worst index, both values and the share of the
// allowance that it used.
testing::AssertionResult close(std::span<const float> got, std::span<const double> want,
                               const Tolerance& tolerance);
testing::AssertionResult close(std::span<const float> got, std::span<const float> want,
                               const Tolerance& tolerance);

// Normalised mean squared error: sum (got - want)^2 / sum want^2.
double nmse(std::span<const float> got, std::span<const double> want);

}  // namespace longhaul::test
