// Rings of ranks on GPUs, and of ranks on GPUs and on CPUs, against one worker on the CPU: random
// models and plans, documents that are read in chunks, forks, scores, batched decode. The ranks
// share GPU 0, so their exchange is staged through host memory; or each has a GPU of its own, with
// its memory in an arena, and they exchange by NCCL, or by copy engines beside it. Skips visibly
// where there are too few GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "kernels/cpu/threads.h"
#include "model/heads/cache_method.h"
#include "partition/check_plan.h"
#include "partition/homes.h"
#include "tests/multirank/ring_cases.h"
#include "tests/property/worker_cases.h"
#include "tests/support/tolerance.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

constexpr DeviceId kCpu{};
constexpr DeviceId kGpu{Device::kCuda, 0};
constexpr std::int64_t kDocumentTokens = 144;

struct RingCase {
  const char* name;
  std::vector<DeviceId> devices;  // [ranks]
  std::int64_t n_stages = 1;
  HistoryChoice history = HistoryChoice::kByCost;
  KvType kv = KvType::kF32;
  DType weights = DType::kF32;
  std::optional<CacheMethod> method = std::nullopt;  // of all heads; windows: of those that stream
  GpuTransport transport = GpuTransport::kStaged;    // else each rank has a GPU of its own
  bool has_own_gpus() const { return transport != GpuTransport::kStaged; }
};

// Retrieval and streaming heads beside each other, in every layer.
ModelSpec ring_spec(Random& random, const RingCase& c) {
  ModelSpec spec = tiny_spec();
  spec.qkv_bias = spec.attention_output_bias = spec.mlp_bias = random.chance(0.5);
  spec.qk_norm = random.chance(0.5);
  if (is_integer(c.weights)) spec.d_ff = 3 * kInt8Group;
  if (quantises_groups(c.kv)) spec.head_dim = kKvGroup;
  if (c.method && std::holds_alternative<DmcMethod>(*c.method))
    spec.token_merging = TokenMerging{.window = 12, .init_val = 0};
  return spec;
}

HeadTable ring_heads(const ModelSpec& spec, const RingCase& c) {
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  const bool streams = c.method && (std::holds_alternative<RazorMethod>(*c.method) ||
                                    std::holds_alternative<StreamingMethod>(*c.method) ||
                                    std::holds_alternative<SlideMethod>(*c.method));
  if (c.method && !streams)
    return method_heads(spec, roles, {.all = c.method, .full = std::nullopt});
  for (std::size_t i = 1; i < roles.roles.size(); i += 3) roles.roles[i] = HeadRole::kStreaming;
  roles.sink = 5;
  roles.recent = 37;
  if (streams) return method_heads(spec, roles, {.all = {}, .full = {}, .streaming = c.method});
  return duo_attention_heads(spec, roles);
}

// Some tokens special, some punctuation.
std::shared_ptr<const TokenClasses> some_classes(const ModelSpec& spec) {
  TokenClasses classes(static_cast<std::size_t>(spec.vocab_size), TokenClass::kOther);
  for (std::size_t id = 0; id < classes.size(); id += 7) classes[id] = TokenClass::kPunctuation;
  for (std::size_t id = 3; id < classes.size(); id += 29) classes[id] = TokenClass::kSpecial;
  return std::make_shared<const TokenClasses>(std::move(classes));
}

// Two documents, one with forks; chunks that begin and end inside blocks; decode in a batch of rows
// of different lengths, which crosses a block's edge. Made with the answers of `worker`.
std::vector<StepCommand> chunks_and_decode(Random& random, Worker& worker,
                                           std::vector<StepResult>& results) {
  constexpr SamplingParams kGreedy{.n_logprobs = 3};
  constexpr int kSteps = 5;
  constexpr SequenceId kDocument{1};
  constexpr SequenceId kOther{2};
  std::vector<StepCommand> commands;
  std::vector<DecodeBatch::Row> rows;
  const auto add = [&](StepCommand command) {
    results.push_back(worker.step(command));
    commands.push_back(std::move(command));
    return done(results.back());
  };
  const auto read = [&](SequenceId id, std::int64_t n, AfterPrefill after,
                        std::int64_t score = -1) {
    const StepDone answer =
        add(PrefillChunk{id, random_tokens(random, n, tiny_spec().vocab_size), after, score});
    if (after == AfterPrefill::kSample) rows.push_back({id, answer.picked.at(0).token});
  };
  add(OpenSequence{kDocument, kGreedy});
  read(kDocument, 70, AfterPrefill::kNothing);
  read(kDocument, 33, AfterPrefill::kNothing, 2);
  read(kDocument, kDocumentTokens - 103, AfterPrefill::kDocumentEnd);
  add(OpenSequence{kOther, kGreedy});
  read(kOther, 1, AfterPrefill::kNothing);
  read(kOther, 26, AfterPrefill::kSample);
  for (const SequenceId fork : {SequenceId{3}, SequenceId{4}}) {
    add(ForkSequence{kDocument, fork, kGreedy});
    read(fork, 4, AfterPrefill::kSample);
  }
  for (int i = 0; i < kSteps; ++i) {
    const StepDone answer = add(DecodeBatch{rows});
    for (std::size_t row = 0; row < rows.size(); ++row) rows[row].token = answer.picked[row].token;
  }
  return commands;
}

// Heads of the document whose blocks lie on several ranks.
std::int64_t n_heads_in_parts(const Plan& plan) {
  std::int64_t n = 0;
  for (const Stage& stage : plan.replicas.front().stages) {
    for (const auto& homes : stage.home) {
      n += std::ranges::count_if(homes, [&](const Home& home) {
        const std::vector<std::int64_t> blocks =
            blocks_by_share(home, kDocumentTokens / plan.kv.block_size);
        return std::ranges::count_if(blocks, [](std::int64_t b) { return b > 0; }) > 1;
      });
    }
  }
  return n;
}

// The positions of what a worker, or all of a ring, hold of each head of all sequences.
class HeldTokens {
 public:
  explicit HeldTokens(const ModelSpec& spec) : spec_(spec) {}
  void add(Worker& worker) {
    for (std::int64_t id = 1; id <= 4; ++id) {
      for (const LayerId layer : IdRange<LayerId>(spec_.n_layers)) {
        for (const KvHeadId kv_head : IdRange<KvHeadId>(spec_.n_kv_heads)) {
          auto& all = held_[{id, layer.value, kv_head.value}];
          for (const TokenPos position : worker.held_positions(SequenceId{id}, layer, kv_head))
            all.insert(position.value);
        }
      }
    }
  }
  bool operator==(const HeldTokens& other) const { return held_ == other.held_; }

 private:
  ModelSpec spec_;
  std::map<std::array<std::int64_t, 3>, std::multiset<std::int64_t>> held_;
};

// Products with weights of integers and caches of fewer bits round what differs in its last bit.
double tolerance_of(const RingCase& c) {
  if (is_integer(c.weights)) return logits_tolerance(c.weights).absolute;
  return logits_tolerance(c.kv == KvType::kF32 ? c.weights : DType::kBf16).absolute;
}

struct Synthetic {
  DType dtype;
  std::uint64_t seed;
};

// One for each rank, and NCCL or copy engines between them.
void give_own_gpu(int rank, const ModelSpec& spec, const Synthetic& weights, GpuTransport transport,
                  WorkerConfig& config) {
  config.device = {Device::kCuda, rank};
  config.weights = std::make_shared<const Weights>(
      Weights::synthetic(spec, weights.dtype, weights.seed, config.device));
  config.place->transport = transport;
  config.place->arena = {.gpu = std::int64_t{160} << 20, .pinned = std::int64_t{80} << 20};
}

class RingOnGpu : public testing::TestWithParam<RingCase> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_no_device();
  }
  void TearDown() override { set_kernel_threads(0); }
};

TEST_P(RingOnGpu, AnswersAsOneCpu) {
  const RingCase& c = GetParam();
  const auto n_ranks = static_cast<std::int64_t>(c.devices.size());
  if (c.has_own_gpus() && cuda::device_count() < n_ranks)
    GTEST_SKIP() << "takes " << n_ranks << " GPUs";
  const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(n_ranks);
  Random random(seed);
  const ModelSpec spec = ring_spec(random, c);
  const HeadTable heads = ring_heads(spec, c);
  const auto weights = tiny_weights(spec, c.weights, seed);
  const std::int64_t block_size = quantises_groups(c.kv) ? kKvGroup : 16;
  Worker alone({.weights = weights,
                .heads = heads,
                .k_type = c.kv,
                .v_type = c.kv,
                .block_size = block_size,
                .token_classes = some_classes(spec),
                .n_threads = 1});
  std::vector<StepResult> want;
  const std::vector<StepCommand> script = chunks_and_decode(random, alone, want);

  const KvFormat kv{
      .k_type = c.kv, .v_type = c.kv, .block_size = block_size, .head_dim = spec.head_dim};
  const auto draw_plan = [&] {
    return random_plan(random, spec, heads, n_ranks, c.n_stages, kv,
                       is_integer(c.weights) ? kInt8Group : 1);
  };
  // With more ranks than stages some head lies in parts, which are attended to apart and merged.
  Plan plan = draw_plan();
  while (n_ranks > c.n_stages && n_heads_in_parts(plan) == 0) plan = draw_plan();
  const std::vector<std::string> wrong = check_structure(plan, spec, n_ranks);
  ASSERT_TRUE(wrong.empty()) << wrong.front();
  HeldTokens want_held(spec);
  if (c.method) want_held.add(alone);
  HeldTokens held(spec);
  const RingRun got = run_on_ring(
      {.weights = weights,
       .plan = plan,
       .history = c.history,
       .devices = c.devices,
       .gpu_weights =
           std::make_shared<const Weights>(Weights::synthetic(spec, c.weights, seed, kGpu)),
       .token_classes = some_classes(spec),
       .adapt =
           [&](int rank, WorkerConfig& config) {
             if (c.has_own_gpus()) give_own_gpu(rank, spec, {c.weights, seed}, c.transport, config);
           },
       .look =
           [&](Worker& worker) {
             if (c.method) held.add(worker);
             if (!c.has_own_gpus()) return;
             EXPECT_THAT(worker.describe_memory(), testing::Not(testing::HasSubstr("no room")));
             if (c.n_stages == 1 && !c.method) {
               EXPECT_GT(worker.n_graph_steps(), 0);
             }
           }},
      script);
  EXPECT_TRUE(held == want_held);
  EXPECT_EQ(difference(want, got.results, tolerance_of(c)), "");
}

RingCase by_nccl(RingCase c) {
  c.transport = GpuTransport::kNcclWherePossible;
  return c;
}
RingCase by_copy_engines(RingCase c) {
  c.transport = GpuTransport::kCopyEnginesWherePossible;
  return c;
}

RingCase of_method(const char* name, const std::vector<DeviceId>& devices,
                   const CacheMethod& method) {
  return {.name = name, .devices = devices, .method = method};
}

INSTANTIATE_TEST_SUITE_P(
    All, RingOnGpu,
    testing::Values(
        RingCase{"One", {kGpu}},
        RingCase{"TwoKeysTravel", {kGpu, kGpu}, 1, HistoryChoice::kKeysTravel},
        RingCase{"TwoQueriesTravel", {kGpu, kGpu}, 1, HistoryChoice::kQueriesTravel},
        RingCase{"TwoStages", {kGpu, kGpu}, 2},
        RingCase{"Four", {kGpu, kGpu, kGpu, kGpu}, 1, HistoryChoice::kQueriesTravel},
        RingCase{"FourInTwoStages", {kGpu, kGpu, kGpu, kGpu}, 2},
        RingCase{"MixedKeysTravel", {kGpu, kCpu}, 1, HistoryChoice::kKeysTravel},
        RingCase{"MixedQueriesTravel", {kCpu, kGpu}, 1, HistoryChoice::kQueriesTravel},
        RingCase{"MixedInTwoStages", {kGpu, kCpu, kGpu, kCpu}, 2},
        RingCase{"Int8Caches", {kGpu, kGpu}, 1, HistoryChoice::kByCost, KvType::kInt8},
        RingCase{"Kivi4Caches", {kGpu, kGpu}, 1, HistoryChoice::kKeysTravel, KvType::kKivi4},
        RingCase{"Kivi2Mixed", {kGpu, kCpu, kGpu}, 1, HistoryChoice::kByCost, KvType::kKivi2},
        RingCase{"Kivi4Queries", {kCpu, kGpu}, 1, HistoryChoice::kQueriesTravel, KvType::kKivi4},
        RingCase{"Kivi4InTwoStages",
                 {kGpu, kCpu, kGpu, kCpu},
                 2,
                 HistoryChoice::kByCost,
                 KvType::kKivi4},
        RingCase{
            "Int8Weights", {kGpu, kCpu, kGpu}, 1, HistoryChoice::kByCost, KvType::kF32, DType::kI8},
        RingCase{
            "Int4Weights", {kGpu, kCpu, kGpu}, 1, HistoryChoice::kByCost, KvType::kF32, DType::kI4},
        RingCase{"Bf16Weights",
                 {kGpu, kGpu, kCpu},
                 1,
                 HistoryChoice::kByCost,
                 KvType::kF32,
                 DType::kBf16},
        RingCase{"Fp8Caches", {kGpu, kCpu}, 1, HistoryChoice::kByCost, KvType::kFp8},
        RingCase{"Fp8Weights",
                 {kGpu, kCpu, kGpu},
                 1,
                 HistoryChoice::kByCost,
                 KvType::kF32,
                 DType::kF8E4m3},
        of_method("SnapKv", {kGpu, kCpu}, SnapKvMethod{{.capacity = 50, .window = 7, .kernel = 3}}),
        of_method("SnapKvOfEachHead", {kGpu, kCpu, kGpu},
                  SnapKvMethod{
                      {.capacity = 30, .window = 7, .kernel = 3, .group = GroupScore::kEach}}),
        of_method("TovaAtEveryToken", {kGpu, kGpu},
                  TovaMethod{.capacity = 50, .after = KeepWhen::kAfterToken}),
        of_method("PyramidKv", {kCpu, kGpu},
                  PyramidKvMethod{{.capacity = 50, .window = 7, .kernel = 3}, 4}),
        of_method("AdaKv", {kGpu, kCpu, kGpu},
                  AdaKvMethod{{.capacity = 50, .window = 7, .kernel = 3}, 0.3}),
        of_method("Tova", {kGpu, kCpu}, TovaMethod{.capacity = 50}),
        of_method("FastGen", {kGpu, kCpu, kGpu},
                  FastGenMethod{.threshold = 0.5, .frequent = 0.2, .local = 0.2}),
        of_method("Streaming", {kGpu, kCpu}, StreamingMethod{.sink = 5, .window = 40}),
        of_method("Infinite", {kGpu, kGpu, kCpu}, SlideMethod{.sink = 5, .cap = 60, .slide = 11}),
        of_method("Quest", {kGpu, kCpu, kGpu}, QuestMethod{.budget = 48, .page = 8, .dense = 0}),
        of_method("Razor", {kGpu, kCpu, kGpu}, RazorMethod{.sink = 5, .window = 30}),
        of_method("RazorOnGpus", {kGpu, kGpu}, RazorMethod{.sink = 0, .window = 7}),
        of_method("Dmc", {kGpu, kGpu}, DmcMethod{}),
        of_method("DmcMixed", {kGpu, kCpu, kGpu}, DmcMethod{}),
        of_method("H2o", {kCpu, kGpu, kGpu}, H2oMethod{.capacity = 50, .recent = 13}),
        by_nccl({"NcclKeysTravel", {kGpu, kGpu, kGpu}, 1, HistoryChoice::kKeysTravel}),
        by_nccl({"NcclQueriesTravel", {kGpu, kGpu, kGpu}, 1, HistoryChoice::kQueriesTravel}),
        by_nccl({"NcclFourInTwoStages", {kGpu, kGpu, kGpu, kGpu}, 2}),
        by_nccl({"NcclKivi4Caches",
                 {kGpu, kGpu, kGpu},
                 1,
                 HistoryChoice::kQueriesTravel,
                 KvType::kKivi4}),
        by_nccl(
            {"NcclInt8Weights", {kGpu, kGpu}, 1, HistoryChoice::kByCost, KvType::kF32, DType::kI8}),
        by_nccl(of_method("NcclDmc", {kGpu, kGpu, kGpu}, DmcMethod{})),
        by_nccl(of_method("NcclRazor", {kGpu, kGpu}, RazorMethod{.sink = 5, .window = 30})),
        by_copy_engines({"CopiedKeysTravel", {kGpu, kGpu, kGpu}, 1, HistoryChoice::kKeysTravel}),
        by_copy_engines(
            {"CopiedQueriesTravel", {kGpu, kGpu, kGpu}, 1, HistoryChoice::kQueriesTravel}),
        by_copy_engines({"CopiedInTwoStages", {kGpu, kGpu}, 2})),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace longhaul::test
