// What a process really takes while heads choose is no more than plans count, method by method.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>

#include "model/heads/cache_method.h"
#include "partition/make_plan.h"
#include "partition/memory_model.h"
#include "tests/support/process_memory.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kChunk = 500;
constexpr std::int64_t kDocument = 8000;
constexpr std::int64_t kTail = 40;

struct MethodMemory {
  std::string name;
  CacheMethod method;
  bool has_scores = false;  // so many that the formula is not far above them
};

HeadTable heads_of(const CacheMethod& method) {
  const ModelSpec spec = tiny_spec();
  HeadTable heads(spec.n_layers, spec.n_kv_heads);
  for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads))
      heads.set(layer, kv_head, policy_of(method, layer, spec.n_layers, spec.gqa_group()));
  }
  return heads;
}

// A document, a fork with a question, and some of its answer.
void read_and_answer(const std::shared_ptr<const Weights>& weights, const CacheMethod& method,
                     std::int64_t n_document) {
  const ModelSpec& spec = weights->spec();
  Random random(base_seed());
  Worker worker({.weights = weights,
                 .heads = heads_of(method),
                 .block_size = 16,
                 .token_classes = std::make_shared<const TokenClasses>(
                     static_cast<std::size_t>(spec.vocab_size), TokenClass::kOther),
                 .n_threads = 1});
  const SequenceId document{1};
  const SequenceId fork{2};
  done(worker.step(OpenSequence{.sequence = document, .sampling = {}}));
  for (std::int64_t at = 0; at < n_document; at += kChunk) {
    done(worker.step(PrefillChunk{
        .sequence = document,
        .tokens = random_tokens(random, kChunk, spec.vocab_size),
        .after = at + kChunk < n_document ? AfterPrefill::kNothing : AfterPrefill::kDocumentEnd}));
  }
  done(worker.step(ForkSequence{.parent = document, .child = fork, .sampling = {}}));
  const auto question = random_tokens(random, kTail / 2, spec.vocab_size);
  const StepDone asked = prefill(worker, fork, question, kChunk);
  decode(worker, fork, asked.picked.at(0).token, kTail / 2 - 1);
}

RankBytes planned_bytes(const CacheMethod& method) {
  PlanRequest request;
  request.spec = tiny_spec();
  request.heads = heads_of(method);
  request.cluster = equal_cluster(1, std::int64_t{1} << 40);
  request.workload = {.document_tokens = kDocument,
                      .tail_tokens = kTail,
                      .n_sequences = 1,
                      .chunk_len = kChunk,
                      .k_type = KvType::kF32,
                      .v_type = KvType::kF32,
                      .block_size = 16};
  const Plan plan = std::get<Plan>(make_plan(request));
  return memory_of(plan, request.spec, request.cluster, request.workload)[Rank{0}];
}

class ChoiceMemory : public testing::TestWithParam<MethodMemory> {};

TEST_P(ChoiceMemory, IsWithinWhatIsPlanned) {
  const MethodMemory& tested = GetParam();
  const auto weights = tiny_weights();
  const auto measured = peak_of([&] { read_and_answer(weights, tested.method, kChunk); },
                                [&] { read_and_answer(weights, tested.method, kDocument); });
  if (!measured) GTEST_SKIP() << "skipped: the peak is not known";
  const RankBytes planned = planned_bytes(tested.method);
  const std::int64_t bytes = planned.kv_retrieval + planned.kv_streaming + planned.activations;
  // Scores of three heads are whole huge pages of 2 MiB (base/host_memory.h), and so are slabs.
  constexpr std::int64_t kBeside = 8 << 20;
  EXPECT_LE(*measured, bytes + kBeside);
  if (tested.has_scores) {
    EXPECT_GT(2 * *measured, bytes);
  }
  RecordProperty("measured_kib", static_cast<int>(*measured >> 10));
  RecordProperty("planned_kib", static_cast<int>(bytes >> 10));
}

const ScoredBudget kWide{.capacity = 1024, .window = 400, .kernel = 5};
ScoredBudget each_of(ScoredBudget budget) {
  budget.group = GroupScore::kEach;
  return budget;
}

INSTANTIATE_TEST_SUITE_P(
    Methods, ChoiceMemory,
    testing::Values(MethodMemory{"Dense", DenseMethod{}},
                    MethodMemory{"SnapKv", SnapKvMethod{kWide}, true},
                    MethodMemory{"SnapKvOfQueryHeads", SnapKvMethod{each_of(kWide)}, true},
                    MethodMemory{"PyramidKv", PyramidKvMethod{kWide, 4}, true},
                    MethodMemory{"AdaKv", AdaKvMethod{kWide, 0.2}, true},
                    MethodMemory{"Tova", TovaMethod{.capacity = 1024}},
                    MethodMemory{"KeyDiff", KeyDiffMethod{.capacity = 1024}},
                    MethodMemory{"TovaAtEveryToken",
                                 TovaMethod{.capacity = 1024, .after = KeepWhen::kAfterToken}},
                    MethodMemory{"H2o", H2oMethod{.capacity = 1024, .recent = 512}, true},
                    MethodMemory{"FastGen", FastGenMethod{}, true},
                    MethodMemory{"Quest", QuestMethod{.budget = 512, .page = 16, .dense = 0}},
                    MethodMemory{"Razor", RazorMethod{.sink = 4, .window = 512}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace longhaul::test
