#include "tools/identify/gate_optimiser.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

// min(1, max((step + 1) / (N // 5), 0.1), max((N - step) / (N // 5), 0.1)) of the published code.
TEST(GateOptimiser, RateRisesStaysAndFalls) {
  EXPECT_DOUBLE_EQ(rate_factor(0, 2000), 0.1);
  EXPECT_DOUBLE_EQ(rate_factor(99, 2000), 0.25);
  EXPECT_DOUBLE_EQ(rate_factor(399, 2000), 1);
  EXPECT_DOUBLE_EQ(rate_factor(1600, 2000), 1);
  EXPECT_DOUBLE_EQ(rate_factor(1800, 2000), 0.5);
  EXPECT_DOUBLE_EQ(rate_factor(1999, 2000), 0.1);
  EXPECT_DOUBLE_EQ(rate_factor(0, 3), 1);  // fewer steps than fifths
}

// By hand: at the first step Adam moves by the rate, whatever the gradient's size.
TEST(GateOptimiser, FirstStepMovesByTheRate) {
  GateState state = initial_gates(3);
  const std::vector<std::uint8_t> trained = {1, 1, 0};
  const GateOptimiserConfig config{.learning_rate = 0.1, .regularisation = 0, .n_steps = 5};
  update_gates(state, std::vector<double>{5.0, -1e-4, 3.0}, trained, config);
  EXPECT_NEAR(state.gates[0], 0.9, 1e-8);
  EXPECT_NEAR(state.gates[1], 1.1, 1e-4);
  EXPECT_EQ(state.gates[2], 1.0);
  EXPECT_EQ(state.n_steps_done, 1);
  clamp_gates(state);
  EXPECT_EQ(state.gates[1], 1.0);
}

TEST(GateOptimiser, RegularisationPullsTowardsZeroAndNotBeyond) {
  GateState state = initial_gates(2);
  state.gates = {0.5, 0.0};
  const std::vector<std::uint8_t> trained = {1, 1};
  EXPECT_DOUBLE_EQ(mean_gate(state.gates, trained), 0.25);
  update_gates(state, std::vector<double>{0, 0}, trained, {.n_steps = 5});
  EXPECT_LT(state.gates[0], 0.5);
  EXPECT_EQ(state.gates[1], 0.0);
}

}  // namespace
}  // namespace longhaul
