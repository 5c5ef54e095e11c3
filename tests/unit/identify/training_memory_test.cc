// What a training step really takes beside what the formula says: the process' memory, as the
// system counts it.
#include <gtest/gtest.h>
#include <malloc.h>

#include <charconv>
#include <fstream>
#include <optional>
#include <string>

#include "cluster/comm/in_process.h"
#include "tests/support/random.h"
#include "tools/identify/training_cost.h"
#include "tools/identify/two_way_pass.h"

namespace longhaul::test {
namespace {

// A line of /proc/self/status, such as "VmHWM", in bytes.
std::int64_t memory_line(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(name + ":")) continue;
    const std::size_t digit = line.find_first_of("0123456789");
    std::int64_t kib = 0;
    std::from_chars(line.data() + digit, line.data() + line.size(), kib);
    return kib * 1024;
  }
  return 0;
}

// The peak (VmHWM) becomes what is resident now; false where the system does not let us.
bool forget_peak() {
  std::ofstream refs("/proc/self/clear_refs");
  refs << "5";
  refs.flush();
  return refs.good() && memory_line("VmHWM") - memory_line("VmRSS") < (1 << 20);
}

class TrainingMemory : public testing::TestWithParam<DType> {};

TEST_P(TrainingMemory, IsWhatTheFormulaSays) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "skipped: sanitizers keep what is freed";
#endif
  const DType dtype = GetParam();
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 50;
  spec.n_layers = 4;
  spec.d_model = 256;
  spec.d_ff = 640;
  spec.n_heads = 8;
  spec.n_kv_heads = 4;
  spec.head_dim = 64;
  spec.max_seq_len = 4096;
  spec.weight_dtype = dtype;
  spec.attention_window.assign(4, ModelSpec::kNoWindow);
  const TrainingShape shape{.window = {.sink = 64, .recent = 64},
                            .n_tokens = 1024,
                            .n_answer = 512,
                            .kv_value_bytes = dtype == DType::kBf16 ? 2U : 4U,
                            .weight_dtype = dtype};
  const Weights weights = Weights::synthetic(spec, dtype, base_seed());
  Random random(base_seed());
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < shape.n_tokens; ++i)
    tokens.push_back(static_cast<std::int32_t>(random.integer(0, 49)));
  const std::vector<double> gates(16, 0.5);
  const TwoWayConfig config{.window = shape.window,
                            .kv_type = dtype == DType::kBf16 ? KvType::kBf16 : KvType::kF32};
  std::int64_t before = 0;
  std::int64_t peak = 0;
  bool resets = true;
  run_in_process(1, [&](Communicator& comm) {
    // What libraries and threads take the first time is none of a step's.
    const std::span<const std::int32_t> some(tokens.data(), 128);
    TwoWayPass(weights, config, comm).run(some, 64, gates, TwoWayPass::Wants::kGradient);
    ::malloc_trim(0);
    resets = forget_peak();
    before = memory_line("VmRSS");
    TwoWayPass(weights, config, comm)
        .run(tokens, shape.n_answer, gates, TwoWayPass::Wants::kGradient);
    peak = memory_line("VmHWM");
  });
  if (!resets) GTEST_SKIP() << "skipped: the system does not forget a peak";
  const auto formula = static_cast<double>(training_bytes(spec, shape).total());
  const auto measured = static_cast<double>(peak - before);
  // Tensors of 2 MiB and more are whole huge pages (base/host_memory.h): about one more for each.
  constexpr double kBeside = 16 << 20;
  EXPECT_LT(measured, formula + kBeside);
  EXPECT_GT(measured, 0.7 * formula);
  RecordProperty("formula_mib", static_cast<int>(formula / (1 << 20)));
  RecordProperty("measured_mib", static_cast<int>(measured / (1 << 20)));
}

INSTANTIATE_TEST_SUITE_P(Weights, TrainingMemory, testing::Values(DType::kF32, DType::kBf16),
                         [](const auto& tested) {
                           return tested.param == DType::kBf16 ? "Bf16" : "F32";
                         });

}  // namespace
}  // namespace longhaul::test
