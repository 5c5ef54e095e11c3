// Cache methods on a GPU: the tokens that stay are those that stay on the CPU, at every stage of a
// text, and so are the answers.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/device/gpu_memory.h"
#include "model/heads/cache_method.h"
#include "partition/scratch_memory.h"
#include "tests/gpu/wide_model.h"
#include "tests/gpu/worker_plays.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kFirstTokens = 3;

struct ChosenCase {
  std::string name;
  CacheMethod method;
  KvType type = KvType::kF32;
  std::optional<TokenMerging> merging = std::nullopt;  // of the model, for dmc
};

// Where tokens merge they do in all layers: in the only one, where caches are of fewer bits.
ModelSpec spec_of(const ChosenCase& c) {
  ModelSpec spec = wide_spec();
  spec.token_merging = c.merging;
  if (c.merging && c.type != KvType::kF32) {
    spec.n_layers = 1;
    spec.attention_window.resize(1);
  }
  return spec;
}

// What comes first is special; of the others some are punctuation.
std::shared_ptr<const TokenClasses> some_classes(std::int64_t vocab_size) {
  TokenClasses classes;
  for (std::int64_t id = 0; id < vocab_size; ++id)
    classes.push_back(id % 11 == kFirstTokens ? TokenClass::kSpecial
                      : id % 5 == 1           ? TokenClass::kPunctuation
                                              : TokenClass::kOther);
  return std::make_shared<const TokenClasses>(std::move(classes));
}

// Where caches are of fewer bits, what differs in its last bit before it is cached may get the
// neighbouring code, and answers of layers above it differ by more than scores do: then the first
// layer's heads choose, which are not behind attention.
HeadTable chosen_heads(const ChosenCase& c) {
  const ModelSpec spec = spec_of(c);
  HeadTable heads = dense_heads(spec);
  for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
    if (c.type != KvType::kF32 && layer.value > 0) break;
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads))
      heads.set(layer, kv_head, policy_of(c.method, layer, spec.n_layers, spec.gqa_group()));
  }
  return heads;
}

MakeConfig chosen_model(const ChosenCase& c) {
  return [=](const DeviceId& device) {
    WorkerConfig config = wide_model(c.type)(device);
    if (c.merging) {
      config.weights =
          std::make_shared<const Weights>(Weights::synthetic(spec_of(c), DType::kF32, 7, device));
    }
    config.heads = chosen_heads(c);
    config.token_classes = some_classes(wide_spec().vocab_size);
    return config;
  };
}

// What a worker holds of a sequence: the positions of each head's slots, and who sees them.
struct HeldSlots {
  std::vector<TokenPos> positions;
  std::vector<SeenBy> seen_by;
  bool operator==(const HeldSlots&) const = default;
};
using Held = std::vector<HeldSlots>;
Held held_of(Player& player, SequenceId id, const ModelSpec& spec) {
  Held held;
  for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads))
      held.push_back({player.worker().held_positions(id, layer, kv_head),
                      player.worker().held_seen_by(id, layer, kv_head)});
  }
  return held;
}

// A document in chunks; two forks, each with a question in two chunks, and answers together; one
// of them is forked again in the middle, and the document is dropped.
std::vector<Held> choose_and_answer(Player& player, const ModelSpec& spec) {
  Random random(5);
  const std::int64_t vocab_size = spec.vocab_size;
  std::vector<Held> held;
  const auto read = [&](SequenceId id, std::int64_t n, AfterPrefill after) {
    player.step(PrefillChunk{
        .sequence = id, .tokens = random_tokens(random, n, vocab_size), .after = after});
  };
  constexpr SamplingParams kAll{.n_logprobs = 1'000};
  player.open(kA, kAll);
  read(kA, 61, AfterPrefill::kNothing);
  read(kA, 17, AfterPrefill::kNothing);
  read(kA, 40, AfterPrefill::kDocumentEnd);
  held.push_back(held_of(player, kA, spec));
  for (const SequenceId id : {kB, kC}) {
    player.step(ForkSequence{.parent = kA, .child = id, .sampling = kAll});
    read(id, 7, AfterPrefill::kNothing);
    read(id, 12, AfterPrefill::kSample);
    held.push_back(held_of(player, id, spec));
  }
  player.step(DropSequences{.sequences = {kA}});
  player.feed({kB, kC}, random, 4);
  player.step(ForkSequence{.parent = kC, .child = kA, .sampling = kAll});
  player.feed({kA, kB, kC}, random, 4);
  for (const SequenceId id : {kA, kB, kC}) held.push_back(held_of(player, id, spec));
  return held;
}

class ChosenOnGpu : public OnGpu, public testing::WithParamInterface<ChosenCase> {};

TEST_P(ChosenOnGpu, TokensAndAnswersAreTheCpus) {
  const MakeConfig make = chosen_model(GetParam());
  Player cpu(make({}));
  const std::vector<Held> want = choose_and_answer(cpu, spec_of(GetParam()));
  Player gpu(make(kGpu));
  const std::vector<Held> got = choose_and_answer(gpu, spec_of(GetParam()));
  EXPECT_EQ(got, want);
  EXPECT_EQ(gpu.seen().kv_bytes, cpu.seen().kv_bytes);
  expect_same_answers(gpu.seen().picked, cpu.seen().picked, tolerance_of(GetParam().type));
  bool any_gone = false;
  bool any_apart = false;
  for (const Held& held : want) {
    for (const HeldSlots& slots : held) {
      any_gone = any_gone || slots.positions.size() < 110;
      for (const SeenBy seen_by : slots.seen_by) any_apart = any_apart || seen_by != kSeenByAll;
    }
  }
  EXPECT_EQ(any_gone, !std::holds_alternative<QuestMethod>(GetParam().method));
  const auto* snapkv = std::get_if<SnapKvMethod>(&GetParam().method);
  EXPECT_EQ(any_apart, snapkv != nullptr && snapkv->group == GroupScore::kEach);
}

const ScoredBudget kSome{.capacity = 37, .window = 6, .kernel = 3};

ScoredBudget some_after(KeepWhen after, GroupScore group, PoolKind pool) {
  ScoredBudget budget = kSome;
  budget.after = after;
  budget.group = group;
  budget.pool = pool;
  return budget;
}

const ScoredBudget kSomeOfEach =
    some_after(KeepWhen::kAfterDocument, GroupScore::kEach, PoolKind::kAverage);

INSTANTIATE_TEST_SUITE_P(
    All, ChosenOnGpu,
    testing::Values(
        ChosenCase{"SnapKv", SnapKvMethod{kSome}},
        ChosenCase{"SnapKvOfPrompts", SnapKvMethod{some_after(KeepWhen::kAfterPrompt,
                                                              GroupScore::kMax, PoolKind::kMax)}},
        ChosenCase{"SnapKvBf16", SnapKvMethod{kSome}, KvType::kBf16},
        ChosenCase{"SnapKvInt4", SnapKvMethod{kSome}, KvType::kInt4},
        ChosenCase{"SnapKvOfEachHead", SnapKvMethod{kSomeOfEach}},
        ChosenCase{
            "SnapKvOfEachHeadAndPrompt",
            SnapKvMethod{some_after(KeepWhen::kAfterPrompt, GroupScore::kEach, PoolKind::kNone)}},
        ChosenCase{"SnapKvOfEachHeadBf16", SnapKvMethod{kSomeOfEach}, KvType::kBf16},
        ChosenCase{"SnapKvOfEachHeadInt4", SnapKvMethod{kSomeOfEach}, KvType::kInt4},
        ChosenCase{"PyramidKv", PyramidKvMethod{kSome, 4}},
        ChosenCase{"AdaKv", AdaKvMethod{kSome, 0.3}},
        ChosenCase{"KeyDiff", KeyDiffMethod{.capacity = 40}},
        ChosenCase{"KeyDiffOfPrompts",
                   KeyDiffMethod{.ratio = 0.7, .recent = 6, .after = KeepWhen::kAfterPrompt}},
        ChosenCase{"KeyDiffBf16", KeyDiffMethod{.capacity = 40}, KvType::kBf16},
        ChosenCase{"KeyDiffInt4", KeyDiffMethod{.capacity = 40}, KvType::kInt4},
        ChosenCase{"Tova", TovaMethod{.capacity = 40}},
        ChosenCase{"TovaAtEveryToken", TovaMethod{.capacity = 40, .after = KeepWhen::kAfterToken}},
        ChosenCase{"H2o", H2oMethod{.capacity = 40, .recent = 12}},
        ChosenCase{"H2oInt8", H2oMethod{.capacity = 40, .recent = 12}, KvType::kInt8},
        ChosenCase{"Quest", QuestMethod{.budget = 24, .page = 8, .dense = 0}},
        ChosenCase{"QuestOfWholeBlocks", QuestMethod{.budget = 48, .page = 16, .dense = 0}},
        ChosenCase{"QuestBf16", QuestMethod{.budget = 24, .page = 8, .dense = 0}, KvType::kBf16},
        ChosenCase{"Streaming", StreamingMethod{.sink = 3, .window = 30}},
        ChosenCase{"StreamingInt8",
                   StreamingMethod{.window = 30, .positions = SinkPositions::kAbsolute},
                   KvType::kInt8},
        ChosenCase{"Infinite", SlideMethod{.sink = 3, .cap = 40, .slide = 7}},
        ChosenCase{"InfiniteBf16",
                   SlideMethod{.cap = 50, .slide = 20, .positions = SinkPositions::kAbsolute},
                   KvType::kBf16},
        ChosenCase{"Razor", RazorMethod{.sink = 3, .window = 30}},
        ChosenCase{"Dmc", DmcMethod{}, KvType::kF32, TokenMerging{.window = 12, .init_val = 0}},
        ChosenCase{"DmcOfShortWindows", DmcMethod{}, KvType::kF32,
                   TokenMerging{.window = 3, .init_val = -1}},
        ChosenCase{"DmcBf16", DmcMethod{}, KvType::kBf16,
                   TokenMerging{.window = 12, .init_val = 0}},
        ChosenCase{"DmcInt8", DmcMethod{}, KvType::kInt8,
                   TokenMerging{.window = 12, .init_val = 0.2}},
        ChosenCase{"DmcInt4", DmcMethod{}, KvType::kInt4,
                   TokenMerging{.window = 12, .init_val = -0.2}},
        ChosenCase{"RazorInt8", RazorMethod{.sink = 3, .window = 30}, KvType::kInt8},
        ChosenCase{
            "FastGen",
            FastGenMethod{.threshold = 0.5, .frequent = 0.2, .local = 0.2, .sink = kFirstTokens}},
        ChosenCase{"FastGenOfDocuments", FastGenMethod{.threshold = 0.5,
                                                       .frequent = 0.2,
                                                       .local = 0.2,
                                                       .after = KeepWhen::kAfterDocument}}),
    [](const auto& test) { return test.param.name; });

// What the plan counts for a GPU's operators is not less than they take where heads choose.
TEST_F(OnGpu, ScratchMemoryOfHeadsThatChooseIsWithinWhatIsPlanned) {
  for (const CacheMethod& method :
       {CacheMethod(H2oMethod{.capacity = 600, .recent = 20}), CacheMethod(SnapKvMethod{kSome}),
        CacheMethod(SnapKvMethod{kSomeOfEach}),
        CacheMethod(QuestMethod{.budget = 64, .page = 8, .dense = 0})}) {
    const ChosenCase c{.name = "", .method = method, .type = KvType::kInt4};
    const Workload workload = {.document_tokens = 700,
                               .tail_tokens = 2,
                               .n_sequences = 1,
                               .chunk_len = 350,
                               .k_type = KvType::kInt4,
                               .v_type = KvType::kInt4,
                               .block_size = 16};
    Player player(chosen_model(c)(kGpu));
    Random random(3);
    player.open(kA);
    player.prefill(kA, random_tokens(random, 700, 97), 350);
    player.feed({kA}, random, 1);
    const std::int64_t taken = scratch_taken(player.worker());
    EXPECT_GT(taken, 0);
    EXPECT_LE(taken, scratch_bytes({.host = {}, .device = Device::kCuda}, wide_spec(),
                                   chosen_heads(c), workload) -
                         kProductWorkspaceBytes);
  }
}

}  // namespace
}  // namespace longhaul::test
