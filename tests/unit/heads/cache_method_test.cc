// Methods by name: the policies that they are, and which heads get them.
#include "model/heads/cache_method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

ModelSpec spec_of(std::int64_t n_layers, std::int64_t n_kv_heads) {
  ModelSpec spec;
  spec.n_layers = n_layers;
  spec.n_kv_heads = n_kv_heads;
  return spec;
}

template <typename Call>
std::string refused_flag(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

HeadPolicy policy_in_first_layer(const CacheMethod& method) { return policy_of(method, {0}, 4); }

TEST(CacheMethod, WindowsCountTheQuerysOwnTokenAndTheSinks) {
  EXPECT_EQ(policy_in_first_layer(DenseMethod{}), HeadPolicy{});
  EXPECT_EQ(window_of(policy_in_first_layer(StreamingMethod{.sink = 4, .window = 64})),
            (KeyWindow{4, 60}));
  EXPECT_EQ(sink_positions_of(policy_in_first_layer(StreamingMethod{})), SinkPositions::kInCache);
  EXPECT_EQ(window_of(policy_in_first_layer(WindowMethod{.window = 64})), (KeyWindow{0, 64}));
  EXPECT_EQ(window_of(policy_in_first_layer(SlideMethod{.sink = 4, .cap = 64, .slide = 8})),
            (KeyWindow{4, 60, 8}));
}

TEST(CacheMethod, RefusesParametersThatMakeNoSenseByTheirNames) {
  const auto refusal = [](const CacheMethod& method) {
    return refused_flag([&] { policy_in_first_layer(method); });
  };
  EXPECT_THAT(refusal(StreamingMethod{.sink = 64, .window = 64}), HasSubstr("sink=64"));
  EXPECT_THAT(refusal(WindowMethod{.window = 0}), HasSubstr("window=0"));
  EXPECT_THAT(refusal(SlideMethod{.sink = 4, .cap = 64, .slide = 60}), HasSubstr("slide=60"));
  EXPECT_THAT(refusal(SlideMethod{.sink = 4, .cap = 64, .slide = 0}), HasSubstr("slide=0"));
}

TEST(CacheMethod, QuestLeavesTheFirstLayersDense) {
  const QuestMethod quest{.budget = 96, .page = 32, .dense = 1};
  EXPECT_EQ(policy_of(quest, {0}, 4), HeadPolicy{});
  const HeadPolicy policy = policy_of(quest, {1}, 4);
  EXPECT_EQ(policy.choose, Choose(ReadTopPages{32, 96}));
  EXPECT_EQ(std::get<ReadTopPages>(policy.choose).n_pages(), 3);
  EXPECT_EQ(unsupported_part(policy), std::nullopt);
  EXPECT_THAT(refused_flag([] { policy_in_first_layer(QuestMethod{.budget = 8, .page = 16}); }),
              HasSubstr("page=16"));
  EXPECT_THAT(
      unsupported_part({.see = SeeSinkRecent{4, 60}, .choose = ReadTopPages{}}).value_or(""),
      HasSubstr("beside a window"));
  EXPECT_THAT(unsupported_part({.choose = ReadTopPages{}, .keep = KeepBudget{}}).value_or(""),
              HasSubstr("kept by their scores"));
}

TEST(CacheMethod, PagesThatDoNotFillABlockAreRefusedByTheirFlags) {
  const HeadMethods good{.all = QuestMethod{.page = 32}, .full = std::nullopt};
  EXPECT_NO_THROW(require_whole_pages(good, 64));
  EXPECT_NO_THROW(require_whole_pages(HeadMethods{}, 64));
  const HeadMethods bad{.all = std::nullopt, .full = QuestMethod{.page = 48}};
  EXPECT_THAT(refused_flag([&] { require_whole_pages(bad, 64); }),
              HasSubstr("quest: page=48 does not divide --block-size 64"));
}

TEST(CacheMethod, QuestBesideStreamingHeadsChoosesPagesOfTheOthers) {
  const ModelSpec spec = [] {
    ModelSpec s = spec_of(3, 2);
    s.attention_window.assign(3, ModelSpec::kNoWindow);
    return s;
  }();
  HeadRoles roles = HeadRoles::all_retrieval(3, 2);
  for (std::size_t i = 0; i < roles.roles.size(); i += 2) roles.roles[i] = HeadRole::kStreaming;
  roles.sink = 4;
  roles.recent = 60;
  const HeadTable heads =
      method_heads(spec, roles, {.all = std::nullopt, .full = QuestMethod{.dense = 1}});
  EXPECT_EQ(heads.count(HeadKind::kStreaming), 3);
  EXPECT_EQ(heads.count_paged(), 2);
  EXPECT_THAT(describe_briefly(heads), HasSubstr("2 of them read chosen pages only"));
  EXPECT_NO_THROW(require_whole_pages(heads, 64));
  EXPECT_THROW(require_whole_pages(heads, 24), Error);
}

TEST(CacheMethod, QueryHeadsMayChooseByThemselves) {
  SnapKvMethod snap;
  snap.group = GroupScore::kEach;
  ModelSpec spec = spec_of(2, 2);
  spec.n_heads = 6;
  const HeadTable heads =
      method_heads(spec, HeadRoles::all_retrieval(2, 2), {.all = snap, .full = std::nullopt});
  EXPECT_EQ(std::get<KeepBudget>(heads.at({0}, {1}).keep).n_choosers, 3);
  EXPECT_NO_THROW(require_runnable(heads, RunsOn::kRing));
  EXPECT_THAT(refused_flag([&] { policy_of(snap, {0}, 2, 65); }), HasSubstr("65 query heads"));
}

TEST(CacheMethod, FastGenFindsOutHowManyTokensItTakes) {
  const HeadPolicy policy =
      policy_in_first_layer(FastGenMethod{.threshold = 0.9, .frequent = 0.2, .sink = 4});
  const auto& keep = std::get<KeepBudget>(policy.keep);
  EXPECT_EQ(keep.recover, (Recover{0.9, 0.2, 0.3}));
  EXPECT_EQ(keep.when, KeepWhen::kAfterToken);
  EXPECT_EQ(keep.n_sink, 4);
  EXPECT_EQ(unsupported_part(policy), std::nullopt);
  const HeadTable heads(2, 2, policy);
  EXPECT_NO_THROW(require_runnable(heads, RunsOn::kRing));
  EXPECT_FALSE(heads.can_take_back());
  EXPECT_THAT(describe_briefly(heads), HasSubstr("as many as recover 90 %"));
  EXPECT_THAT(refused_flag([] { policy_in_first_layer(FastGenMethod{.threshold = 1.1}); }),
              HasSubstr("fastgen: threshold=1.1"));
  EXPECT_THAT(refused_flag([] { policy_in_first_layer(FastGenMethod{.local = -0.1}); }),
              HasSubstr("local=-0.1"));
  EXPECT_EQ(with_budget(FastGenMethod{}, 100), CacheMethod(FastGenMethod{}));
}

TEST(CacheMethod, RazorIsForHeadsThatStream) {
  const HeadPolicy policy = policy_in_first_layer(RazorMethod{.sink = 4, .window = 100});
  EXPECT_EQ(window_of(policy), (KeyWindow{4, 96}));
  EXPECT_EQ(policy.rest, Rest::kCompensationKey);
  EXPECT_EQ(unsupported_part(policy), std::nullopt);
  EXPECT_THAT(refused_flag([] { policy_in_first_layer(RazorMethod{.sink = 9, .window = 9}); }),
              HasSubstr("razor: sink=9"));
  const ModelSpec spec = spec_of(2, 2);
  HeadRoles roles = HeadRoles::all_retrieval(2, 2);
  const HeadMethods methods{
      .all = std::nullopt, .full = std::nullopt, .streaming = RazorMethod{.sink = 1, .window = 9}};
  EXPECT_THAT(refused_flag([&] { method_heads(spec, roles, methods); }),
              HasSubstr("--head-profile"));
  roles.roles[1] = HeadRole::kStreaming;
  roles.sink = 1;
  roles.recent = 2;
  const HeadTable heads = method_heads(spec, roles, methods);
  EXPECT_EQ(heads.at({0}, {0}), HeadPolicy{});
  EXPECT_EQ(heads.window({0}, {1}), (KeyWindow{1, 8}));
  EXPECT_TRUE(heads.leaves_rest());
  EXPECT_FALSE(duo_attention_heads(spec, roles).leaves_rest());
  EXPECT_NO_THROW(require_runnable(heads, RunsOn::kRing));
}

TEST(CacheMethod, H2oAndTovaMayChooseAtEveryToken) {
  const HeadPolicy h2o = policy_in_first_layer(H2oMethod{.capacity = 9, .recent = 4});
  const auto& keep = std::get<KeepBudget>(h2o.keep);
  EXPECT_EQ(keep.when, KeepWhen::kAfterToken);
  EXPECT_EQ(keep.observe, Observe(ObserveAll{}));
  EXPECT_EQ(keep.n_recent, 4);
  EXPECT_EQ(unsupported_part(h2o), std::nullopt);
  const HeadPolicy tova =
      policy_in_first_layer(TovaMethod{.capacity = 9, .after = KeepWhen::kAfterToken});
  EXPECT_EQ(std::get<KeepBudget>(tova.keep).n_recent, 0);  // the newest token may go
  EXPECT_EQ(unsupported_part(tova), std::nullopt);
  const auto refusal = [](const CacheMethod& method) {
    return refused_flag([&] { policy_in_first_layer(method); });
  };
  EXPECT_THAT(refusal(H2oMethod{.capacity = 9, .recent = 10}), HasSubstr("recent=10"));
  EXPECT_THAT(refusal(TovaMethod{.ratio = 0.5, .after = KeepWhen::kAfterToken}),
              HasSubstr("after=token"));
  SnapKvMethod snap;
  snap.after = KeepWhen::kAfterToken;
  EXPECT_THAT(refusal(snap), HasSubstr("snapkv: after=token"));
}

TEST(CacheMethod, KeyDiffComparesKeysOnceATextIsWhole) {
  const HeadPolicy policy =
      policy_in_first_layer(KeyDiffMethod{.ratio = 0.75, .sink = 2, .recent = 3});
  const auto& keep = std::get<KeepBudget>(policy.keep);
  EXPECT_EQ(keep.observe, Observe(ObserveKeys{}));
  EXPECT_EQ(keep.share, 0.25);
  EXPECT_EQ(keep.n_sink + keep.n_recent, 5);
  EXPECT_EQ(keep.when, KeepWhen::kAfterDocument);
  EXPECT_EQ(unsupported_part(policy), std::nullopt);
  const HeadTable heads(2, 2, policy);
  EXPECT_NO_THROW(require_runnable(heads, RunsOn::kRing));
  EXPECT_THAT(describe_briefly(heads), HasSubstr("tokens whose keys are most distinct, 25 %"));
  const auto refusal = [](const CacheMethod& method) {
    return refused_flag([&] { policy_in_first_layer(method); });
  };
  EXPECT_THAT(refusal(KeyDiffMethod{.capacity = 9, .sink = 5, .recent = 5}),
              HasSubstr("keydiff: sink=5 and recent=5"));
  EXPECT_THAT(refusal(KeyDiffMethod{.capacity = 0}), HasSubstr("keydiff: capacity=0"));
  EXPECT_THAT(refusal(KeyDiffMethod{.ratio = 1}), HasSubstr("keydiff: ratio=1"));
  EXPECT_THAT(refusal(KeyDiffMethod{.after = KeepWhen::kAfterToken}),
              HasSubstr("keydiff: after=token"));
  EXPECT_EQ(with_budget(KeyDiffMethod{.ratio = 0.5}, 77),
            CacheMethod(KeyDiffMethod{.capacity = 77}));
}

SnapKvMethod snapkv(std::int64_t capacity, std::int64_t window) {
  SnapKvMethod method;
  method.capacity = capacity;
  method.window = window;
  return method;
}

TEST(CacheMethod, SnapKvObservesTheWindowThatItKeeps) {
  const HeadPolicy policy = policy_in_first_layer(snapkv(100, 8));
  const auto& keep = std::get<KeepBudget>(policy.keep);
  EXPECT_EQ(keep.n_tokens, 100);
  EXPECT_EQ(keep.n_recent, 8);
  EXPECT_EQ(keep.observe, Observe(ObserveLast{8}));
  EXPECT_EQ(keep.pool, (Pool{PoolKind::kAverage, 5}));
  EXPECT_EQ(keep.when, KeepWhen::kAfterDocument);
  EXPECT_EQ(unsupported_part(policy), std::nullopt);
}

// As published: from 2 - 1/beta of the mean down to 1/beta of it, behind the window.
TEST(CacheMethod, PyramidKvKeepsLessInHigherLayersAndAsMuchInAll) {
  PyramidKvMethod method;
  method.capacity = 108;
  method.window = 8;
  method.beta = 10;
  std::int64_t sum = 0;
  std::vector<std::int64_t> budgets;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const HeadPolicy policy = policy_of(method, {layer}, 3);
    budgets.push_back(std::get<KeepBudget>(policy.keep).n_tokens);
    sum += budgets.back();
  }
  EXPECT_EQ(budgets, (std::vector<std::int64_t>{198, 108, 18}));
  EXPECT_EQ(sum, 3 * 108);
}

TEST(CacheMethod, RefusesBudgetsThatMakeNoSenseByTheirNames) {
  const auto refusal = [](const CacheMethod& method) {
    return refused_flag([&] { policy_in_first_layer(method); });
  };
  EXPECT_THAT(refusal(snapkv(10, 11)), HasSubstr("window=11"));
  SnapKvMethod even = snapkv(100, 8);
  even.kernel = 4;
  EXPECT_THAT(refusal(even), HasSubstr("kernel=4 must be an odd number"));
  AdaKvMethod all_gone;
  all_gone.ratio = 1;
  EXPECT_THAT(refusal(all_gone), HasSubstr("adakv: ratio=1"));
}

TEST(CacheMethod, TakesABudgetInPlaceOfItsOwn) {
  EXPECT_EQ(with_budget(StreamingMethod{}, 77), CacheMethod(StreamingMethod{.window = 77}));
  EXPECT_EQ(with_budget(SlideMethod{}, 77), CacheMethod(SlideMethod{.cap = 77, .slide = 36}));
  EXPECT_EQ(with_budget(TovaMethod{.ratio = 0.5}, 77), CacheMethod(TovaMethod{.capacity = 77}));
  EXPECT_EQ(with_budget(snapkv(9, 5), 77), CacheMethod(snapkv(77, 5)));
  EXPECT_EQ(with_budget(DenseMethod{}, 77), CacheMethod(DenseMethod{}));
}

TEST(CacheMethod, IsForAllHeadsOrForThoseThatSeeEverything) {
  const ModelSpec spec = spec_of(2, 2);
  HeadRoles roles = HeadRoles::all_retrieval(2, 2);
  const HeadTable all = method_heads(spec, roles, {.all = WindowMethod{.window = 9}, .full = {}});
  EXPECT_EQ(all.windows(), std::vector<KeyWindow>{(KeyWindow{0, 9})});
  EXPECT_EQ(all.count(HeadKind::kRetrieval), 0);
  EXPECT_EQ(method_heads(spec, roles, {}), duo_attention_heads(spec, roles));

  roles.roles[1] = HeadRole::kStreaming;
  roles.sink = 1;
  roles.recent = 2;
  const HeadTable full = method_heads(spec, roles, {.all = {}, .full = WindowMethod{.window = 9}});
  EXPECT_EQ(full.window({0}, {0}), (KeyWindow{0, 9}));
  EXPECT_EQ(full.window({0}, {1}), (KeyWindow{1, 2}));
  EXPECT_THAT(refused_flag([&] { method_heads(spec, roles, {.all = DenseMethod{}, .full = {}}); }),
              HasSubstr("--full-heads"));
  EXPECT_THAT(refused_flag([&] {
                method_heads(spec, HeadRoles::all_retrieval(2, 2),
                             {.all = DenseMethod{}, .full = DenseMethod{}});
              }),
              HasSubstr("give one of them"));
}

TEST(CacheMethod, LeavesLayersAloneThatHaveAWindowOfTheirOwn) {
  ModelSpec spec = spec_of(2, 1);
  spec.attention_window = {ModelSpec::kNoWindow, 100};
  const HeadTable heads = method_heads(spec, HeadRoles::all_retrieval(2, 1),
                                       {.all = WindowMethod{.window = 9}, .full = {}});
  EXPECT_EQ(heads.window({0}, {0}), (KeyWindow{0, 9}));
  EXPECT_EQ(heads.at({1}, {0}), (HeadPolicy{.see = SeeModelWindow{100}}));
}

// A head profile was asked for, which would have changed nothing.
TEST(CacheMethod, SaysThatStreamingHeadsNeedALayerWithoutAWindowOfTheModel) {
  ModelSpec spec = spec_of(2, 1);
  const auto refusal = [&] {
    return refused_flag([&] {
      method_heads(spec, HeadRoles::all_retrieval(2, 1),
                   {.all = {}, .full = {}, .streaming = RazorMethod{}});
    });
  };
  EXPECT_THAT(refusal(), HasSubstr("give --head-profile"));
  spec.attention_window = {100, 100};
  EXPECT_THAT(refusal(), HasSubstr("leave it out, for the model has a window of its own in every"));
}

// Which models merge tokens (DMC) they say themselves.
TEST(CacheMethod, MergingGoesWithModelsThatWereTrainedForItAlone) {
  ModelSpec spec = spec_of(2, 2);
  const HeadRoles all = HeadRoles::all_retrieval(2, 2);
  const auto refusal = [&](const HeadMethods& methods, const HeadRoles& roles) {
    return refused_flag([&] { method_heads(spec, roles, methods); });
  };
  EXPECT_THAT(refusal({.all = DmcMethod{}, .full = {}}, all), HasSubstr("dmc_window_size"));
  EXPECT_THAT(refusal({.all = {}, .full = DmcMethod{}}, all), HasSubstr("dmc_window_size"));

  spec.token_merging = TokenMerging{};
  const HeadTable merging(2, 2, {.write = Write::kMergeIntoOpenSlot});
  EXPECT_EQ(method_heads(spec, all, {}), merging);
  EXPECT_EQ(method_heads(spec, all, {.all = DmcMethod{}, .full = {}}), merging);
  EXPECT_EQ(dense_heads(spec), merging);
  EXPECT_FALSE(merging.can_take_back());
  EXPECT_EQ(describe_briefly(merging), "all 4 KV heads merge tokens into slots (DMC)");
  EXPECT_NO_THROW(require_runnable(merging, RunsOn::kRing));
  EXPECT_NO_THROW(require_fits(merging, spec));
  EXPECT_THROW(require_fits(HeadTable(2, 2), spec), Error);
  EXPECT_FALSE(merging.chooses_in_answers());
  SnapKvMethod apart;
  apart.group = GroupScore::kEach;
  for (const CacheMethod& other : {CacheMethod(DenseMethod{}), CacheMethod(H2oMethod{}),
                                   CacheMethod(FastGenMethod{}), CacheMethod(apart)})
    EXPECT_THAT(refusal({.all = other, .full = {}}, all), HasSubstr("--policy dmc, or none"));
  HeadRoles streaming = all;
  streaming.sink = 1;
  streaming.recent = 9;
  streaming.roles.front() = HeadRole::kStreaming;
  EXPECT_THAT(refusal({}, streaming), HasSubstr("merges tokens (DMC"));

  HeadTable some = merging;
  some.set({1}, {0}, {});
  EXPECT_THAT(refused_flag([&] { require_runnable(some, RunsOn::kOneRank); }),
              HasSubstr("layer 1, KV head 0"));
  EXPECT_THAT(unsupported_part({.see = SeeSinkRecent{1, 9}, .write = Write::kMergeIntoOpenSlot})
                  .value_or(""),
              HasSubstr("DMC"));
}

}  // namespace
}  // namespace longhaul
