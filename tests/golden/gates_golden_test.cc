// Gates after 50 steps, beside those of the independent implementation, on 1, 2 and 3 ranks.
#include <gtest/gtest.h>

#include "tests/golden/golden_gates.h"

namespace longhaul::test {
namespace {

class Gates : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Gates,
                         testing::Values("llama3_gqa", "llama_biases", "qwen3",
                                         "qwen2_layer_types"),
                         [](const auto& model) { return std::string(model.param); });

TEST_P(Gates, EqualTheOraclesAfterFiftySteps) {
  const GoldenGates want = read_golden_gates(GetParam());
  for (const std::size_t n_ranks : {1U, 2U, 3U}) {
    const TrainingRun run =
        train_golden_gates(GetParam(), want, std::vector<DeviceId>(n_ranks), want.lengths.size());
    ASSERT_EQ(run.steps.size(), want.distances.size());
    for (std::size_t i = 0; i < want.gates.size(); ++i)
      EXPECT_NEAR(run.state.gates[i], want.gates[i], 5e-4) << n_ranks << " ranks, gate " << i;
    for (std::size_t i = 0; i < want.distances.size(); ++i) {
      EXPECT_NEAR(run.steps[i].distance, want.distances[i], 1e-6 + 5e-3 * want.distances[i])
          << n_ranks << " ranks, step " << i;
    }
  }
}

}  // namespace
}  // namespace longhaul::test
