// identify on GPUs: steps of training beside those of the independent implementation and of CPUs,
// alone, on ranks that share the GPU, and beside a rank on a CPU; scores of heads are the CPU's.
// Skips visibly where there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/device/device_cuda.h"
#include "cluster/comm/in_process.h"
#include "tests/golden/golden_gates.h"
#include "tests/support/random.h"
#include "tools/identify/head_scores.h"
#include "worker/device_communicator.h"

namespace longhaul::test {
namespace {

constexpr DeviceId kCpu{};
constexpr DeviceId kGpu{Device::kCuda, 0};

class IdentifyOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_no_device();
  }
};

class GatesOnGpu : public IdentifyOnGpu, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, GatesOnGpu,
                         testing::Values("llama3_gqa", "llama_biases", "qwen3",
                                         "qwen2_layer_types"),
                         [](const auto& model) { return std::string(model.param); });

TEST_P(GatesOnGpu, EqualTheOraclesAndTheCpus) {
  constexpr std::size_t kSteps = 3;
  const GoldenGates want = read_golden_gates(GetParam());
  const TrainingRun cpu = train_golden_gates(GetParam(), want, {kCpu}, kSteps);
  for (const std::vector<DeviceId>& devices : {std::vector{kGpu}, std::vector{kGpu, kGpu}}) {
    const TrainingRun run = train_golden_gates(GetParam(), want, devices, kSteps);
    ASSERT_EQ(run.steps.size(), kSteps);
    for (std::size_t i = 0; i < kSteps; ++i) {
      EXPECT_NEAR(run.steps[i].distance, want.distances[i], 1e-6 + 5e-3 * want.distances[i])
          << devices.size() << " ranks, step " << i;
    }
    // The means are of gradients, whatever the steps' size.
    const double largest =
        *std::max_element(cpu.state.mean.begin(), cpu.state.mean.end(),
                          [](double a, double b) { return std::abs(a) < std::abs(b); });
    for (std::size_t i = 0; i < want.gates.size(); ++i) {
      EXPECT_NEAR(run.state.gates[i], cpu.state.gates[i], 1e-4)
          << devices.size() << " ranks, gate " << i;
      EXPECT_NEAR(run.state.mean[i], cpu.state.mean[i], 1e-3 * std::abs(largest))
          << devices.size() << " ranks, gate " << i;
    }
  }
}

TEST_F(IdentifyOnGpu, TheSameTrainingHasTheSameBits) {
  const GoldenGates golden = read_golden_gates("qwen3");
  const TrainingRun one = train_golden_gates("qwen3", golden, {kGpu, kGpu}, 2);
  const TrainingRun again = train_golden_gates("qwen3", golden, {kGpu, kGpu}, 2);
  EXPECT_EQ(one.state.gates, again.state.gates);
  EXPECT_EQ(one.state.mean, again.state.mean);
  EXPECT_EQ(one.steps.back().distance, again.steps.back().distance);
}

ModelSpec toy_spec() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 40;
  spec.d_model = 32;
  spec.d_ff = 48;
  spec.n_layers = 2;
  spec.n_heads = 4;
  spec.n_kv_heads = 2;
  spec.head_dim = 8;
  spec.max_seq_len = 4096;
  spec.attention_window = {ModelSpec::kNoWindow, ModelSpec::kNoWindow};
  return spec;
}

TwoWayResult gradient_on(const std::vector<DeviceId>& devices, DType dtype) {
  Random random(base_seed());
  const std::vector<std::int32_t> text = random_tokens(random, 150, toy_spec().vocab_size);
  const std::vector<double> gates = {0.9, 0.3, 0.5, 0.1};
  std::mutex mutex;
  TwoWayResult result;
  run_in_process(static_cast<int>(devices.size()), [&](Communicator& host) {
    DeviceQueue queue(devices[static_cast<std::size_t>(host.rank())]);
    const Weights weights = Weights::synthetic(toy_spec(), dtype, base_seed(), queue.device());
    const auto of_device = communicator_of_device(host, queue.stream(), GpuTransport::kStaged);
    Communicator& comm = of_device ? *of_device : host;
    TwoWayPass pass(weights,
                    {.window = {.sink = 4, .recent = 12},
                     .stream = queue.stream(),
                     .block_size = 16,
                     .tile_rows = 32},
                    comm);
    TwoWayResult own = pass.run(text, 20, gates, TwoWayPass::Wants::kGradient);
    const std::lock_guard lock(mutex);
    if (comm.rank() == 0) result = std::move(own);
  });
  return result;
}

TEST_F(IdentifyOnGpu, GradientsAreTheCpus) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const TwoWayResult cpu = gradient_on({kCpu}, dtype);
    double largest = 0;
    for (const double d : cpu.d_gates) largest = std::max(largest, std::abs(d));
    EXPECT_GT(largest, 0);
    // Of bf16, products round their inputs.
    const double tolerance = dtype == DType::kF32 ? 1e-4 : 2e-2;
    for (const std::vector<DeviceId>& devices :
         {std::vector{kGpu}, std::vector{kGpu, kGpu}, std::vector{kCpu, kGpu, kGpu}}) {
      const TwoWayResult gpu = gradient_on(devices, dtype);
      EXPECT_NEAR(gpu.distance, cpu.distance, tolerance * cpu.distance) << devices.size();
      for (std::size_t i = 0; i < cpu.d_gates.size(); ++i)
        EXPECT_NEAR(gpu.d_gates[i], cpu.d_gates[i], tolerance * largest) << devices.size();
    }
  }
}

struct Scores {
  HeadScores echo, induction, needle, repetition;
};

Scores scores_on(const std::vector<DeviceId>& devices) {
  Random random(base_seed());
  std::vector<std::int32_t> text = random_tokens(random, 50, toy_spec().vocab_size);
  std::vector<std::int32_t> twice = text;
  twice.insert(twice.end(), text.begin(), text.end());
  for (std::size_t i = 0; i < 6; ++i) text.push_back(text[20 + i]);
  std::mutex mutex;
  Scores scores;
  run_in_process(static_cast<int>(devices.size()), [&](Communicator& host) {
    DeviceQueue queue(devices[static_cast<std::size_t>(host.rank())]);
    const Weights weights =
        Weights::synthetic(toy_spec(), DType::kF32, base_seed(), queue.device());
    const auto of_device = communicator_of_device(host, queue.stream(), GpuTransport::kStaged);
    Communicator& comm = of_device ? *of_device : host;
    TwoWayPass pass(
        weights, {.window = {.sink = 2, .recent = 8}, .stream = queue.stream(), .block_size = 16},
        comm);
    const CopyScores copies =
        copy_scores(pass, weights.spec(), comm, {.n_random = 30, .n_copies = 3});
    const Scores own{.echo = copies.echo,
                     .induction = copies.induction,
                     .needle = needle_scores(pass, weights.spec(), comm, text, 6),
                     .repetition = repetition_scores(pass, weights.spec(), comm, twice, 50)};
    const std::lock_guard lock(mutex);
    if (comm.rank() == 0) scores = own;
  });
  return scores;
}

TEST_F(IdentifyOnGpu, ScoresAreTheCpus) {
  const Scores cpu = scores_on({kCpu});
  const auto expect_near = [](const HeadScores& got, const HeadScores& want, const char* what) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << what << i;
  };
  for (const std::vector<DeviceId>& devices : {std::vector{kGpu}, std::vector{kGpu, kGpu}}) {
    const Scores gpu = scores_on(devices);
    for (const double score : gpu.induction) EXPECT_GT(score, 0);
    expect_near(gpu.echo, cpu.echo, "echo ");
    expect_near(gpu.induction, cpu.induction, "induction ");
    expect_near(gpu.needle, cpu.needle, "needle ");
    expect_near(gpu.repetition, cpu.repetition, "repetition ");
  }
}

}  // namespace
}  // namespace longhaul::test
