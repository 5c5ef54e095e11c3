// What identify takes of a GPU's memory beside what its formulas say, as the emulated GPU counts
// it.
#include <gtest/gtest.h>

#include "base/device/gpu_memory.h"
#include "cluster/comm/in_process.h"
#include "tests/cuda_on_host/device_memory.h"
#include "tests/support/random.h"
#include "tools/identify/finder_cost.h"
#include "tools/identify/head_scores.h"
#include "worker/device_communicator.h"

namespace longhaul::test {
namespace {

constexpr DeviceId kGpu{Device::kCuda, 0};

ModelSpec memory_spec() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 50;
  spec.n_layers = 2;
  spec.d_model = 64;
  spec.d_ff = 160;
  spec.n_heads = 8;
  spec.n_kv_heads = 4;
  spec.head_dim = 16;
  spec.max_seq_len = 1 << 16;
  spec.attention_window.assign(2, ModelSpec::kNoWindow);
  return spec;
}

void run_part(IdentifyPart part, TwoWayPass& pass, Communicator& comm, const TrainingShape& shape) {
  const ModelSpec spec = memory_spec();
  Random random(base_seed());
  std::vector<std::int32_t> tokens = random_tokens(random, shape.n_tokens / 2, spec.vocab_size);
  for (std::int64_t i = 0; static_cast<std::int64_t>(tokens.size()) < shape.n_tokens; ++i)
    tokens.push_back(tokens[static_cast<std::size_t>(i)]);
  if (part == IdentifyPart::kTraining) {
    const std::vector<double> gates(static_cast<std::size_t>(spec.n_layers * spec.n_kv_heads), 0.5);
    pass.run(tokens, shape.n_answer, gates, TwoWayPass::Wants::kGradient);
  } else {
    repetition_scores(pass, spec, comm, tokens, shape.n_tokens / 2);
  }
}

struct MemoryOnGpuCase {
  const char* name;
  IdentifyPart part;
  DType dtype;
  int n_ranks;
};
class IdentifyMemoryOnGpu : public testing::TestWithParam<MemoryOnGpuCase> {};

TEST_P(IdentifyMemoryOnGpu, IsAtMostWhatTheFormulaSays) {
  const auto [name, part, dtype, n_ranks] = GetParam();
  const ModelSpec spec = memory_spec();
  const TrainingShape shape{.window = {.sink = 32, .recent = 32},
                            .n_tokens = 512,
                            .n_answer = part == IdentifyPart::kTraining ? 128 : 0,
                            .tile_rows = 128,
                            .n_ranks = n_ranks,
                            .kv_value_bytes = dtype == DType::kBf16 ? 2U : 4U,
                            .weight_dtype = dtype,
                            .device = Device::kCuda};
  const Weights weights = Weights::synthetic(spec, dtype, base_seed(), kGpu);
  const std::size_t before = cuda_on_host::device_memory_taken();
  cuda_on_host::forget_device_memory_peak();
  run_in_process(n_ranks, [&](Communicator& host) {
    DeviceQueue queue(kGpu);
    const auto of_device = communicator_of_device(host, queue.stream(), GpuTransport::kStaged);
    Communicator& comm = of_device ? *of_device : host;
    TwoWayPass pass(weights,
                    {.window = shape.window,
                     .stream = queue.stream(),
                     .kv_type = dtype == DType::kBf16 ? KvType::kBf16 : KvType::kF32,
                     .tile_rows = shape.tile_rows},
                    comm);
    run_part(part, pass, comm, shape);
  });
  const auto measured = static_cast<double>(cuda_on_host::device_memory_peak() - before);
  const auto formula = static_cast<double>(n_ranks * bytes_of(part, spec, shape));
  EXPECT_LT(measured, formula);
  // But for what is the same whatever the text: a workspace, and stages, of which few are used
  // here.
  const auto of_text = [&](double bytes, std::int64_t n_stages) {
    return bytes -
           static_cast<double>(n_ranks * (kProductWorkspaceBytes + n_stages * kUploadStageBytes));
  };
  EXPECT_GT(of_text(measured, 1), 0.5 * of_text(formula, kNUploadStages));
}

INSTANTIATE_TEST_SUITE_P(
    Parts, IdentifyMemoryOnGpu,
    testing::Values(MemoryOnGpuCase{"TrainingF32", IdentifyPart::kTraining, DType::kF32, 1},
                    MemoryOnGpuCase{"TrainingBf16", IdentifyPart::kTraining, DType::kBf16, 1},
                    MemoryOnGpuCase{"TrainingOnTwoRanks", IdentifyPart::kTraining, DType::kF32, 2},
                    MemoryOnGpuCase{"Repetition", IdentifyPart::kRepetition, DType::kBf16, 1}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace longhaul::test
