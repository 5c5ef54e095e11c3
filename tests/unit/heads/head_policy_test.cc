// Policies: what makes sense, what kind of head they make, and what an engine refuses by name.
#include "model/heads/head_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using testing::HasSubstr;
using testing::Optional;

std::string invalid_because(const HeadPolicy& policy) {
  try {
    validate(policy);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HeadPolicy, SeesEverythingAndKeepsItUnlessToldOtherwise) {
  const HeadPolicy policy;
  EXPECT_TRUE(window_of(policy).is_unlimited());
  EXPECT_EQ(kind_of(policy), HeadKind::kRetrieval);
  EXPECT_EQ(invalid_because(policy), "");
  EXPECT_EQ(unsupported_part(policy), std::nullopt);
}

TEST(HeadPolicy, TellsTheModelsWindowFromAMethods) {
  const HeadPolicy by_method{.see = SeeSinkRecent{0, 100}};
  const HeadPolicy by_model{.see = SeeModelWindow{100}};
  EXPECT_EQ(window_of(by_method), window_of(by_model));
  EXPECT_EQ(kind_of(by_method), HeadKind::kStreaming);
  EXPECT_EQ(kind_of(by_model), HeadKind::kModelWindow);
}

TEST(HeadPolicy, NumbersThatFilesHoldStay) {
  EXPECT_EQ(static_cast<int>(HeadKind::kRetrieval), 0);
  EXPECT_EQ(static_cast<int>(HeadKind::kStreaming), 1);
  EXPECT_EQ(static_cast<int>(HeadKind::kModelWindow), 2);
}

TEST(HeadPolicy, CountsTheKeysOfAQuery) {
  EXPECT_EQ(KeyWindow{}.n_keys(1'000'000'000'000), 1'000'000'000'000);
  EXPECT_EQ((KeyWindow{4, 12}).n_keys(10), 10);
  EXPECT_EQ((KeyWindow{4, 12}).n_keys(17), 16);
}

TEST(HeadPolicy, ASlidingCacheSeesAtMostItsCapacity) {
  const HeadPolicy policy{.see = SeeSinkSlide{.sink = 4, .capacity = 20, .slide = 8}};
  EXPECT_EQ(window_of(policy), (KeyWindow{4, 16, 8}));
  EXPECT_EQ(invalid_because(policy), "");
  EXPECT_EQ(unsupported_part(policy), std::nullopt);
  EXPECT_EQ(sink_positions_of(policy), SinkPositions::kInCache);
}

// The first key behind the sinks, for the example in head_policy.h and as a buffer would have it.
TEST(HeadPolicy, SlidesInStepsAsABufferThatForgets) {
  const KeyWindow example{.sink = 1, .recent = 4, .slide = 3};
  const std::vector<std::int64_t> first = {4, 4, 4, 7, 7, 7, 10};  // of queries 5 to 11
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(example.first_recent(5 + static_cast<std::int64_t>(i)), first[i]);
  EXPECT_LE(example.first_recent(4), 0);
  for (std::int64_t slide = 1; slide <= 6; ++slide) {
    const KeyWindow window{.sink = 3, .recent = 6, .slide = slide};
    std::int64_t n_here = 0;
    std::int64_t n_gone = 0;
    for (std::int64_t token = 0; token < 100; ++token, ++n_here) {
      if (n_here == window.sink + window.recent) {
        n_here -= slide;
        n_gone += slide;
      }
      EXPECT_EQ(window.n_gone(token), n_gone) << "slide " << slide << ", token " << token;
      if (n_gone == 0) continue;
      EXPECT_EQ(window.first_recent(token), window.sink + n_gone);
    }
  }
}

// Fed one at a time, StreamingLLM's published loop attends first and evicts then: with start_size 4
// and recent_size 4 the ninth token sees all nine, the tenth the first four, the last four, and
// itself. So `recent` is its recent_size and the query's own token.
TEST(HeadPolicy, StreamingCountsTheQuerysOwnTokenBesideThePublishedRecentSize) {
  const KeyWindow window{.sink = 4, .recent = 5};
  EXPECT_EQ(window.n_gone(8), 0);
  EXPECT_EQ(window.n_gone(9), 1);
  EXPECT_EQ(window.first_recent(9), 5);
  EXPECT_EQ(window.n_keys(10), 9);
  // Its position in a full cache is start_size + recent_size.
  EXPECT_EQ(100 - window.n_gone(100), 8);
}

TEST(HeadPolicy, RefusesWhatMakesNoSenseByName) {
  EXPECT_THAT(invalid_because({.see = SeeSinkRecent{4, 0}}), HasSubstr("recent is 0"));
  EXPECT_THAT(invalid_because({.see = SeeSinkRecent{-1, 4}}), HasSubstr("sink is -1"));
  EXPECT_THAT(invalid_because({.see = SeeSinkSlide{4, 20, 17}}), HasSubstr("slides by 17"));
  EXPECT_THAT(invalid_because({.see = SeeModelWindow{0}}), HasSubstr("window of 0"));
  EXPECT_THAT(invalid_because({.choose = ReadTopPages{16, 8}}), HasSubstr("budget of 8"));
  EXPECT_THAT(invalid_because({.keep = KeepBudget{.n_tokens = 8, .n_sink = 4, .n_recent = 5}}),
              HasSubstr("4 first and 5 last tokens of 8"));
  EXPECT_THAT(invalid_because({.keep = KeepBudget{.n_tokens = 8, .observe = ObserveLast{0}}}),
              HasSubstr("last 0 queries"));
  EXPECT_THAT(invalid_because({.keep = KeepBudget{.n_tokens = 8, .n_choosers = 2}}),
              HasSubstr("2 query heads choose"));
  EXPECT_THAT(
      invalid_because({.keep = KeepBudget{.share = 1, .recover = Recover{.threshold = 1.5}}}),
      HasSubstr("recovered attention: 1.5"));
  EXPECT_THAT(invalid_because({.keep = KeepBudget{.n_tokens = 8, .recover = Recover{}}}),
              HasSubstr("it may take all"));
  // An even kernel gives torch's pooling a row one longer than the prefix.
  EXPECT_THAT(invalid_because({.keep = KeepBudget{.n_tokens = 8, .pool = {PoolKind::kMax, 4}}}),
              HasSubstr("odd number"));
}

TEST(HeadPolicy, EveryPartThatCannotBeRunYetIsNamed) {
  const auto name = [](const HeadPolicy& policy) { return unsupported_part(policy); };
  EXPECT_EQ(name({.choose = ReadTopPages{}}), std::nullopt);
  EXPECT_EQ(name({.keep = KeepBudget{}}), std::nullopt);
  EXPECT_THAT(name({.see = SeeSinkRecent{4, 12}, .keep = KeepBudget{}}),
              Optional(HasSubstr("beside a window")));
  EXPECT_EQ(name({.keep = KeepBudget{.when = KeepWhen::kAfterToken, .observe = ObserveAll{}}}),
            std::nullopt);
  EXPECT_THAT(name({.keep = KeepBudget{.observe = ObserveAll{}, .pool = {PoolKind::kMax, 3}}}),
              Optional(HasSubstr("pooled")));
  EXPECT_THAT(name({.keep = KeepBudget{.observe = ObserveAll{}, .group = GroupScore::kMax}}),
              Optional(HasSubstr("group")));
  EXPECT_THAT(name({.keep = KeepBudget{.when = KeepWhen::kAfterChunk}}),
              Optional(HasSubstr("every chunk")));
  EXPECT_THAT(name({.keep = KeepBudget{.share = 0.5, .when = KeepWhen::kAfterToken}}),
              Optional(HasSubstr("share")));
  EXPECT_THAT(name({.keep = KeepBudget{.when = KeepWhen::kAfterToken,
                                       .select = SelectAmong::kLayerShared}}),
              Optional(HasSubstr("shared")));
  EXPECT_THAT(name({.keep = KeepBudget{.when = KeepWhen::kAfterToken, .group = GroupScore::kEach}}),
              Optional(HasSubstr("by themselves at every token")));
  EXPECT_THAT(
      name({.keep = KeepBudget{.group = GroupScore::kEach, .select = SelectAmong::kLayerAlike}}),
      Optional(HasSubstr("all heads alike")));
  EXPECT_THAT(name({.keep = KeepBudget{.share = 1, .recover = Recover{}}}),
              Optional(HasSubstr("some queries alone")));
  EXPECT_EQ(name({.write = Write::kMergeIntoOpenSlot}), std::nullopt);
  EXPECT_THAT(name({.keep = KeepBudget{}, .write = Write::kMergeIntoOpenSlot}),
              Optional(HasSubstr("DMC")));
  EXPECT_THAT(name({.rest = Rest::kCompensationKey}), Optional(HasSubstr("RazorAttention")));
  EXPECT_THAT(name({.store = {.k = KvType::kInt8}}), Optional(HasSubstr("types")));
  EXPECT_EQ(name({.see = SeeSinkRecent{4, 12, SinkPositions::kInCache}}), std::nullopt);
  EXPECT_EQ(name({.see = SeeModelWindow{12}}), std::nullopt);
}

}  // namespace
}  // namespace longhaul
