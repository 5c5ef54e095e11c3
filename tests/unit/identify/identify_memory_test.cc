// What each part of identify really takes beside what its formula says: the process' memory, as the
// system counts it.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "cluster/comm/in_process.h"
#include "tests/support/process_memory.h"
#include "tests/support/random.h"
#include "tools/identify/finder_cost.h"
#include "tools/identify/head_scores.h"
#include "tools/identify/two_way_pass.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kVocabSize = 50;

ModelSpec memory_spec(DType dtype, std::int64_t n_layers, std::int64_t n_heads) {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = kVocabSize;
  spec.n_layers = n_layers;
  spec.d_model = 256;
  spec.d_ff = 640;
  spec.n_heads = n_heads;
  spec.n_kv_heads = 4;
  spec.head_dim = 64;
  spec.max_seq_len = 1 << 16;
  spec.weight_dtype = dtype;
  spec.attention_window.assign(static_cast<std::size_t>(n_layers), ModelSpec::kNoWindow);
  return spec;
}

// A text of `n` tokens whose second half repeats the first one.
std::vector<std::int32_t> repeated_text(std::int64_t n) {
  Random random(base_seed());
  std::vector<std::int32_t> tokens = random_tokens(random, n / 2, kVocabSize);
  for (std::int64_t i = 0; i < n / 2; ++i) tokens.push_back(tokens[static_cast<std::size_t>(i)]);
  return tokens;
}

struct MemoryCase {
  DType dtype = DType::kF32;
  IdentifyPart part = IdentifyPart::kTraining;
  int n_ranks = 1;
};

std::string name_of_memory_case(const testing::TestParamInfo<MemoryCase>& tested) {
  static const std::map<IdentifyPart, std::string> parts = {
      {IdentifyPart::kTraining, "Training"},
      {IdentifyPart::kDistance, "Distance"},
      {IdentifyPart::kCopies, "Copies"},
      {IdentifyPart::kNeedle, "Needle"},
      {IdentifyPart::kRepetition, "Repetition"}};
  return parts.at(tested.param.part) + (tested.param.dtype == DType::kBf16 ? "Bf16" : "F32") +
         (tested.param.n_ranks > 1 ? "On" + std::to_string(tested.param.n_ranks) : "");
}

class IdentifyMemory : public testing::TestWithParam<MemoryCase> {};

// One part with a text of this shape.
void run_part(IdentifyPart part, const Weights& weights, const TrainingShape& shape,
              Communicator& comm) {
  const TwoWayConfig config{.window = shape.window,
                            .kv_type = shape.kv_value_bytes == 2 ? KvType::kBf16 : KvType::kF32};
  TwoWayPass pass(weights, config, comm);
  const ModelSpec& spec = weights.spec();
  const std::vector<double> gates(static_cast<std::size_t>(spec.n_layers * spec.n_kv_heads), 0.5);
  const std::vector<std::int32_t> tokens = repeated_text(shape.n_tokens);
  switch (part) {
    case IdentifyPart::kTraining:
      pass.run(tokens, shape.n_answer, gates, TwoWayPass::Wants::kGradient);
      break;
    case IdentifyPart::kDistance:
      pass.run(tokens, shape.n_answer, gates, TwoWayPass::Wants::kDistance);
      break;
    case IdentifyPart::kCopies:
      copy_scores(pass, spec, comm, {.n_random = shape.n_tokens / 4, .n_copies = 4});
      break;
    case IdentifyPart::kNeedle:
      needle_scores(pass, spec, comm, tokens, shape.n_answer);
      break;
    case IdentifyPart::kRepetition:
      repetition_scores(pass, spec, comm, tokens, shape.n_tokens / 2);
      break;
  }
}

TEST_P(IdentifyMemory, IsWhatTheFormulaSays) {
  const auto [dtype, part, n_ranks] = GetParam();
  const bool has_backward = part == IdentifyPart::kTraining;
  const ModelSpec spec =
      has_backward ? memory_spec(dtype, 4, 8) : memory_spec(dtype, /*n_layers=*/2, /*n_heads=*/4);
  const bool has_answer = part != IdentifyPart::kCopies && part != IdentifyPart::kRepetition;
  // Finders' memory is that of long texts.
  const TrainingShape shape{.window = {.sink = 64, .recent = 64},
                            .n_tokens = has_backward ? 1024 : 4096,
                            .n_answer = has_answer ? 512 : 0,
                            .n_ranks = n_ranks,
                            .kv_value_bytes = dtype == DType::kBf16 ? 2U : 4U,
                            .weight_dtype = dtype};
  const Weights weights = Weights::synthetic(spec, dtype, base_seed());
  TrainingShape some = shape;
  some.n_tokens = 128;
  some.n_answer = std::min<std::int64_t>(some.n_answer, 64);
  const auto run = [&](const TrainingShape& of_text) {
    run_in_process(
        n_ranks, [&, part = part](Communicator& comm) { run_part(part, weights, of_text, comm); });
  };
  const auto measured_bytes = peak_of([&] { run(some); }, [&] { run(shape); });
  if (!measured_bytes) GTEST_SKIP() << "skipped: the peak is not known";
  const auto formula = static_cast<double>(n_ranks * bytes_of(part, spec, shape));
  const auto measured = static_cast<double>(*measured_bytes);
  // Tensors of 2 MiB and more are whole huge pages (base/host_memory.h): about one more for each.
  constexpr double kBeside = 16 << 20;
  EXPECT_LT(measured, formula + n_ranks * kBeside);
  EXPECT_GT(measured, 0.7 * formula);
  RecordProperty("formula_mib", static_cast<int>(formula / (1 << 20)));
  RecordProperty("measured_mib", static_cast<int>(measured / (1 << 20)));
}

std::vector<MemoryCase> all_memory_cases() {
  std::vector<MemoryCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const IdentifyPart part :
         {IdentifyPart::kTraining, IdentifyPart::kDistance, IdentifyPart::kCopies,
          IdentifyPart::kNeedle, IdentifyPart::kRepetition}) {
      cases.push_back({dtype, part});
    }
  }
  // Ranks have a part of the rows each, and all keys of a layer.
  cases.push_back({DType::kF32, IdentifyPart::kTraining, 2});
  cases.push_back({DType::kBf16, IdentifyPart::kTraining, 3});
  cases.push_back({DType::kF32, IdentifyPart::kDistance, 3});
  cases.push_back({DType::kF32, IdentifyPart::kRepetition, 2});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Parts, IdentifyMemory, testing::ValuesIn(all_memory_cases()),
                         name_of_memory_case);

}  // namespace
}  // namespace longhaul::test
