// Tables and roles as JSON: what a plan holds reads back equal, everything else is refused.
#include "model/heads/heads_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

HeadTable mixed_table() {
  HeadTable heads(2, 3);
  heads.set({0}, {1}, {.see = SeeSinkRecent{4, 12}});
  heads.set({0}, {2}, {.see = SeeSinkRecent{4, 12, SinkPositions::kInCache}});
  for (const KvHeadId kv_head : IdRange<KvHeadId>(3)) {
    heads.set({1}, kv_head, {.see = SeeModelWindow{100}});
  }
  return heads;
}

std::string refusal_of(std::string_view text) {
  const Json json = parse_json(text, "plan.json");
  try {
    heads_from_json(JsonField(json, "plan.json"));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HeadsJson, ATableReadsBackEqual) {
  const Json json = to_json(mixed_table());
  EXPECT_EQ(to_text(json),
            R"({"policies":[{"see":"all"},{"see":"sink and recent","sink":4,"recent":12,)"
            R"("positions":"absolute"},{"see":"sink and recent","sink":4,"recent":12,)"
            R"("positions":"in the cache"},{"see":"model window","recent":100}],)"
            R"("layers":[[0,1,2],[3,3,3]]})");
  EXPECT_EQ(heads_from_json(JsonField(json, "plan.json")), mixed_table());
}

TEST(HeadsJson, ASlidingCacheReadsBackEqual) {
  HeadTable heads(1, 2);
  heads.set({0}, {1}, {.see = SeeSinkSlide{.sink = 4, .capacity = 20, .slide = 8}});
  const Json json = to_json(heads);
  EXPECT_EQ(to_text(json), R"({"policies":[{"see":"all"},{"see":"sink and slide","sink":4,)"
                           R"("capacity":20,"slide":8,"positions":"in the cache"}],)"
                           R"("layers":[[0,1]]})");
  EXPECT_EQ(heads_from_json(JsonField(json, "plan.json")), heads);
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"sink and slide","sink":4,"capacity":9,"slide":6,)"
                         R"("positions":"absolute"}],"layers":[[0]]})"),
              HasSubstr("slide"));
}

TEST(HeadsJson, ABudgetReadsBackEqual) {
  HeadTable heads(1, 2);
  heads.set({0}, {1},
            {.keep = KeepBudget{.n_tokens = 40,
                                .share = 0.25,
                                .head_floor = 0.5,
                                .n_sink = 1,
                                .n_recent = 7,
                                .when = KeepWhen::kAfterDocument,
                                .observe = ObserveLast{7},
                                .pool = {PoolKind::kMax, 5},
                                .group = GroupScore::kMax,
                                .select = SelectAmong::kLayerShared}});
  const Json json = to_json(heads);
  EXPECT_EQ(to_text(json), R"({"policies":[{"see":"all"},{"see":"all","keep":{"tokens":40,)"
                           R"("share":0.25,"head_floor":0.5,"sink":1,"recent":7,)"
                           R"("when":"after the document","last_queries":7,"pool":"max",)"
                           R"("kernel":5,"group":"max","among":"layer, shared"}}],)"
                           R"("layers":[[0,1]]})");
  EXPECT_EQ(heads_from_json(JsonField(json, "plan.json")), heads);
  std::string damaged = to_text(json);
  damaged.replace(damaged.find("\"max\""), 5, "\"big\"");
  EXPECT_THAT(refusal_of(damaged), HasSubstr("pool"));
}

TEST(HeadsJson, PagesAndScoresOfAllQueriesAreReadBack) {
  HeadTable heads(1, 2);
  heads.set({0}, {0}, {.choose = ReadTopPages{16, 256}});
  heads.set(
      {0}, {1},
      {.keep = KeepBudget{
           .n_tokens = 9, .n_recent = 4, .when = KeepWhen::kAfterToken, .observe = ObserveAll{}}});
  const Json json = to_json(heads);
  EXPECT_THAT(to_text(json), HasSubstr(R"("choose":{"page_tokens":16,"budget_tokens":256})"));
  EXPECT_THAT(to_text(json), HasSubstr(R"("last_queries":0)"));
  EXPECT_EQ(heads_from_json(JsonField(json, "plan.json")), heads);
}

TEST(HeadsJson, QueryHeadsThatChooseAndRecoveredAttentionAreReadBack) {
  HeadTable heads(1, 2);
  heads.set({0}, {0},
            {.keep = KeepBudget{.n_tokens = 9, .group = GroupScore::kEach, .n_choosers = 4}});
  heads.set({0}, {1},
            {.keep = KeepBudget{.share = 1,
                                .when = KeepWhen::kAfterToken,
                                .observe = ObserveAll{},
                                .recover = Recover{0.9, 0.25, 0.125}}});
  const Json json = to_json(heads);
  EXPECT_THAT(to_text(json), HasSubstr(R"("group":"each","among":"head","choosers":4)"));
  EXPECT_THAT(to_text(json),
              HasSubstr(R"("recover":{"threshold":0.9,"frequent":0.25,"local":0.125})"));
  EXPECT_EQ(heads_from_json(JsonField(json, "plan.json")), heads);
  EXPECT_TRUE(heads.needs_token_classes());
}

TEST(HeadsJson, ComparedKeysAreReadBack) {
  const HeadTable heads(1, 1, {.keep = KeepBudget{.n_tokens = 9, .observe = ObserveKeys{}}});
  const Json json = to_json(heads);
  EXPECT_THAT(to_text(json),
              AllOf(HasSubstr(R"("compares":"keys")"), Not(HasSubstr("last_queries"))));
  EXPECT_EQ(heads_from_json(JsonField(json, "plan.json")), heads);
  std::string damaged = to_text(json);
  damaged.replace(damaged.find("\"keys\""), 6, "\"all\"");
  EXPECT_THAT(refusal_of(damaged), HasSubstr("compares"));
}

TEST(HeadsJson, MergedTokensAreReadBack) {
  const HeadTable heads(2, 2, {.write = Write::kMergeIntoOpenSlot});
  const Json json = to_json(heads);
  EXPECT_THAT(to_text(json), HasSubstr(R"("write":"merge")"));
  EXPECT_EQ(heads_from_json(JsonField(json, "plan.json")), heads);
}

TEST(HeadsJson, WhatCannotBeRunIsNotWritten) {
  HeadTable heads = mixed_table();
  heads.set({0}, {0}, {.rest = Rest::kCompensationKey});
  EXPECT_THROW(to_json(heads), Error);
}

TEST(HeadsJson, RefusesDamagedTables) {
  EXPECT_EQ(refusal_of(R"({"policies":[{"see":"all"}],"layers":[[0]]})"), "");
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"some"}],"layers":[[0]]})"), HasSubstr("see"));
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"all"}],"layers":[[1]]})"), HasSubstr("layers"));
  EXPECT_THAT(refusal_of(R"({"policies":[],"layers":[[0]]})"), HasSubstr("layers"));
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"all"}],"layers":[[0],[0,0]]})"),
              HasSubstr("as many heads"));
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"all","pages":16}],"layers":[[0]]})"),
              HasSubstr("pages"));
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"model window","recent":0}],"layers":[[0]]})"),
              HasSubstr("recent"));
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"sink and recent","sink":1,"recent":2,)"
                         R"("positions":"nowhere"}],"layers":[[0]]})"),
              HasSubstr("positions"));
}

TEST(HeadsJson, RolesAreAMaskForEachLayer) {
  HeadRoles roles = HeadRoles::all_retrieval(2, 3);
  roles.roles[4] = HeadRole::kStreaming;
  roles.sink = 4;
  roles.recent = 12;
  EXPECT_EQ(to_text(to_json(roles)),
            R"({"sink":4,"recent":12,"n_retrieval":5,"retrieval_mask":["111","101"]})");
}

}  // namespace
}  // namespace longhaul
