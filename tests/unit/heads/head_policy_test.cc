// Policies: what makes sense, what kind of head they make, and what an engine refuses by name.
#include "model/heads/head_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using testing::HasSubstr;
using testing::Optional;

std::string refusal_of(const HeadPolicy& policy) {
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
  EXPECT_EQ(refusal_of(policy), "");
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
  EXPECT_EQ(window_of(policy), (KeyWindow{4, 16}));
  EXPECT_EQ(refusal_of(policy), "");
}

TEST(HeadPolicy, RefusesWhatMakesNoSenseByName) {
  EXPECT_THAT(refusal_of({.see = SeeSinkRecent{4, 0}}), HasSubstr("recent is 0"));
  EXPECT_THAT(refusal_of({.see = SeeSinkRecent{-1, 4}}), HasSubstr("sink is -1"));
  EXPECT_THAT(refusal_of({.see = SeeSinkSlide{4, 20, 17}}), HasSubstr("slides by 17"));
  EXPECT_THAT(refusal_of({.see = SeeModelWindow{0}}), HasSubstr("window of 0"));
  EXPECT_THAT(refusal_of({.choose = ReadTopPages{16, 8}}), HasSubstr("budget of 8"));
  EXPECT_THAT(refusal_of({.keep = KeepBudget{.n_tokens = 8, .n_sink = 4, .n_recent = 5}}),
              HasSubstr("4 first and 5 last tokens of 8"));
  EXPECT_THAT(refusal_of({.keep = KeepBudget{.n_tokens = 8, .observe = ObserveLast{0}}}),
              HasSubstr("last 0 queries"));
  // An even kernel gives torch's pooling a row one longer than the prefix.
  EXPECT_THAT(refusal_of({.keep = KeepBudget{.n_tokens = 8, .pool = {PoolKind::kMax, 4}}}),
              HasSubstr("odd number"));
}

TEST(HeadPolicy, EveryPartThatCannotBeRunYetIsNamed) {
  const auto name = [](const HeadPolicy& policy) { return unsupported_part(policy); };
  EXPECT_THAT(name({.see = SeeSinkSlide{4, 20, 8}}), Optional(HasSubstr("slides")));
  EXPECT_THAT(name({.choose = ReadTopPages{}}), Optional(HasSubstr("Quest")));
  EXPECT_THAT(name({.keep = KeepBudget{}}), Optional(HasSubstr("scores")));
  EXPECT_THAT(name({.write = Write::kMergeIntoOpenSlot}), Optional(HasSubstr("DMC")));
  EXPECT_THAT(name({.rest = Rest::kCompensationKey}), Optional(HasSubstr("RazorAttention")));
  EXPECT_THAT(name({.store = {.k = KvType::kInt8}}), Optional(HasSubstr("types")));
  EXPECT_EQ(name({.see = SeeSinkRecent{4, 12, SinkPositions::kInCache}}), std::nullopt);
  EXPECT_EQ(name({.see = SeeModelWindow{12}}), std::nullopt);
}

}  // namespace
}  // namespace longhaul
