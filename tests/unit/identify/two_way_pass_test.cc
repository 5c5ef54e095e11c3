// The two-way pass against the double-precision oracle: its distance, its gradient against finite
// differences of the oracle's distance, and the same on any number of ranks.
#include "tools/identify/two_way_pass.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "cluster/comm/in_process.h"
#include "tests/support/random.h"
#include "tests/support/reference_two_way.h"
#include "tools/identify/gate_training.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kNone = ModelSpec::kNoWindow;

struct Toy {
  const char* name;
  std::vector<std::int64_t> windows;
  bool qk_norm = false;
  bool biases = false;
  bool sink_logits = false;
  std::int64_t n_tokens = 150;
};

ModelSpec spec_of(const Toy& toy) {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 50;
  spec.d_model = 32;
  spec.d_ff = 48;
  spec.n_layers = static_cast<std::int64_t>(toy.windows.size());
  spec.n_heads = 6;
  spec.n_kv_heads = 2;
  spec.head_dim = 8;
  spec.max_seq_len = 4096;
  spec.qkv_bias = spec.attention_output_bias = spec.mlp_bias = toy.biases;
  spec.qk_norm = toy.qk_norm;
  if (toy.sink_logits) spec.sink_logits = SinkLogits::kLearned;
  spec.attention_window = toy.windows;
  return spec;
}

constexpr StudentWindow kWindow{.sink = 5, .recent = 11};
constexpr std::int64_t kAnswer = 13;

struct Problem {
  explicit Problem(const Toy& toy)
      : weights(Weights::synthetic(spec_of(toy), DType::kF32, base_seed())) {
    Random random(base_seed());
    const ModelSpec& spec = weights.spec();
    tokens = random_tokens(random, toy.n_tokens, spec.vocab_size);
    for (std::int64_t i = 0; i < spec.n_layers * spec.n_kv_heads; ++i)
      gates.push_back(random.uniform(0, 0.9));
  }
  TwoWayCase reference() const {
    return {.weights = weights,
            .tokens = tokens,
            .n_answer = kAnswer,
            .sink = kWindow.sink,
            .recent = kWindow.recent};
  }
  TwoWayResult on_ranks(int n_ranks) const {
    std::mutex mutex;
    TwoWayResult result;
    run_in_process(n_ranks, [&](Communicator& comm) {
      TwoWayPass pass(weights, {.window = kWindow, .block_size = 16, .tile_rows = 32}, comm);
      TwoWayResult own = pass.run(tokens, kAnswer, gates, TwoWayPass::Wants::kGradient);
      const std::lock_guard lock(mutex);
      if (comm.rank() == 0) result = std::move(own);
    });
    return result;
  }

  Weights weights;
  std::vector<std::int32_t> tokens;
  std::vector<double> gates;
};

class TwoWay : public testing::TestWithParam<Toy> {};
INSTANTIATE_TEST_SUITE_P(
    Toys, TwoWay,
    testing::Values(Toy{.name = "llama", .windows = {kNone, kNone, kNone}},
                    Toy{.name = "norms_of_heads", .windows = {kNone, kNone}, .qk_norm = true},
                    Toy{.name = "biases", .windows = {kNone, kNone}, .biases = true},
                    Toy{.name = "sink_logits", .windows = {kNone, kNone}, .sink_logits = true},
                    Toy{.name = "windows", .windows = {kNone, 20, kNone}},
                    Toy{.name = "short_text", .windows = {kNone, kNone}, .n_tokens = 17}),
    [](const auto& toy) { return std::string(toy.param.name); });

TEST_P(TwoWay, DistanceAndGradientEqualTheOracles) {
  const Problem problem(GetParam());
  const TwoWayResult got = problem.on_ranks(1);
  const TwoWayCase reference = problem.reference();
  const double want = two_way_distance(reference, problem.gates);
  EXPECT_GT(want, 0);
  EXPECT_NEAR(got.distance, want, 1e-5 * want);
  const std::vector<std::uint8_t> trained = trained_gates(problem.weights.spec());
  double largest = 0;
  for (const double d : got.d_gates) largest = std::max(largest, std::abs(d));
  for (std::size_t i = 0; i < problem.gates.size(); ++i) {
    std::vector<double> moved = problem.gates;
    constexpr double kStep = 1e-5;
    moved[i] += kStep;
    const double above = two_way_distance(reference, moved);
    moved[i] -= 2 * kStep;
    const double numeric = (above - two_way_distance(reference, moved)) / (2 * kStep);
    EXPECT_NEAR(got.d_gates[i], numeric, 1e-4 * largest) << "gate " << i;
    EXPECT_EQ(trained[i] == 0, numeric == 0) << "gate " << i;
  }
}

TEST_P(TwoWay, IsTheSameOnSeveralRanks) {
  const Problem problem(GetParam());
  const TwoWayResult one = problem.on_ranks(1);
  EXPECT_EQ(problem.on_ranks(1).d_gates, one.d_gates);
  double largest = 0;
  for (const double d : one.d_gates) largest = std::max(largest, std::abs(d));
  // The distance is the mean square of differences of hidden states of size 1, each with float's
  // rounding: an error of eps in a difference of sqrt(distance) moves its square by twice their
  // product.
  constexpr double kEps = std::numeric_limits<float>::epsilon();
  const double rounding = 1e-6 * one.distance + 2 * kEps * std::sqrt(one.distance);
  for (const int n_ranks : {2, 3}) {
    const TwoWayResult several = problem.on_ranks(n_ranks);
    EXPECT_NEAR(several.distance, one.distance, rounding);
    for (std::size_t i = 0; i < one.d_gates.size(); ++i)
      EXPECT_NEAR(several.d_gates[i], one.d_gates[i], 1e-5 * largest) << n_ranks << " " << i;
    EXPECT_EQ(problem.on_ranks(n_ranks).d_gates, several.d_gates);
  }
}

TEST(TwoWayPass, OfOpenGatesHasNoDistance) {
  Problem problem({.name = "", .windows = {kNone, kNone}});
  problem.gates.assign(problem.gates.size(), 1.0);
  const TwoWayResult result = problem.on_ranks(1);
  EXPECT_LT(result.distance, 1e-10);
  for (const double d : result.d_gates) EXPECT_NEAR(d, 0, 1e-5);
}

TEST(TwoWayPass, RefusesWeightsOfIntegers) {
  for (const DType dtype : {DType::kI8, DType::kI4}) {
    const Weights weights = Weights::synthetic(spec_of({.name = "", .windows = {kNone}}), dtype, 1);
    run_in_process(1, [&](Communicator& comm) {
      EXPECT_THROW(TwoWayPass(weights, {.window = kWindow, .block_size = 16}, comm), Error);
    });
  }
}

TEST(GateTraining, GoesOnWithTheSameBits) {
  const Problem problem({.name = "", .windows = {kNone, kNone}});
  const auto train = [&](const GateState& state, std::int64_t end) {
    GateState out;
    run_in_process(1, [&](Communicator& comm) {
      const TrainingArgs args{.weights = problem.weights,
                              .two_way = {.window = kWindow, .block_size = 16},
                              .optimiser = {.n_steps = 6},
                              .text_of =
                                  [&](std::int64_t step) {
                                    return PasskeyText{
                                        {problem.tokens.begin(), problem.tokens.end() - 3 * step},
                                        kAnswer};
                                  },
                              .state = state,
                              .stops = [&](std::int64_t step) { return step == end; }};
      out = train_gates(args, comm).state;
    });
    return out;
  };
  const GateState whole = train(initial_gates(problem.gates.size()), -1);
  EXPECT_EQ(whole.n_steps_done, 6);
  const GateState half = train(initial_gates(problem.gates.size()), 3);
  EXPECT_EQ(half.n_steps_done, 3);
  const auto path = std::filesystem::temp_directory_path() / "longhaul_gate_state_test.json";
  const Json settings = JsonObject{{"seed", 42}};
  std::filesystem::remove(path);
  EXPECT_FALSE(read_state(path, problem.gates.size(), settings));
  write_state(path, half, settings);
  const auto read = read_state(path, problem.gates.size(), settings);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, half);
  EXPECT_EQ(train(*read, -1), whole);
  EXPECT_THROW(read_state(path, problem.gates.size(), JsonObject{{"seed", 43}}), Error);
  EXPECT_THROW(read_state(path, problem.gates.size() + 1, settings), Error);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace longhaul::test
