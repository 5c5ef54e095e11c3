// Tables from published parameters: which head gets what, and whose word counts.
#include "model/heads/head_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

ModelSpec three_layers() {
  ModelSpec spec;
  spec.n_layers = 3;
  spec.n_kv_heads = 4;
  spec.attention_window = {ModelSpec::kNoWindow, 100, ModelSpec::kNoWindow};
  return spec;
}

HeadRoles mixed_roles() {
  const auto r = HeadRole::kRetrieval;
  const auto s = HeadRole::kStreaming;
  return {.n_layers = 3,
          .n_kv_heads = 4,
          .roles = {s, r, s, r, s, r, s, r, s, s, r, s},
          .sink = 7,
          .recent = 33};
}

std::string not_runnable_because(const HeadTable& heads, RunsOn where) {
  try {
    require_runnable(heads, where);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(),
              why_not_on_ring(heads) ? ErrorCode::kInvalidArgument : ErrorCode::kUnsupported);
    return error.what();
  }
  return "";
}

TEST(HeadTable, DenseHeadsSeeAllButWhereTheModelHasAWindow) {
  const HeadTable heads = dense_heads(three_layers());
  EXPECT_EQ(heads.count(HeadKind::kRetrieval), 8);
  EXPECT_EQ(heads.count(HeadKind::kModelWindow), 4);
  EXPECT_TRUE(heads.window({2}, {3}).is_unlimited());
  EXPECT_EQ(heads.window({1}, {0}), (KeyWindow{0, 100}));
}

TEST(HeadTable, DuoAttentionFollowsItsRoles) {
  const HeadTable heads = duo_attention_heads(three_layers(), mixed_roles());
  EXPECT_TRUE(heads.window({0}, {1}).is_unlimited());
  EXPECT_EQ(heads.window({0}, {2}), (KeyWindow{7, 33}));
  EXPECT_TRUE(heads.window({2}, {2}).is_unlimited());
  EXPECT_EQ(heads.count(HeadKind::kRetrieval), 3);
  EXPECT_EQ(heads.count(HeadKind::kStreaming), 5);
}

TEST(HeadTable, AWindowOfTheModelOverrulesEveryMethod) {
  for (const HeadTable& heads :
       {duo_attention_heads(three_layers(), mixed_roles()),
        streaming_heads(three_layers(), {4, 12, SinkPositions::kInCache})}) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(4)) {
      EXPECT_EQ(heads.at({1}, kv_head), (HeadPolicy{.see = SeeModelWindow{100}}));
    }
  }
}

TEST(HeadTable, StreamingHeadsCarryTheirPositions) {
  const HeadTable heads = streaming_heads(three_layers(), {4, 12, SinkPositions::kInCache});
  EXPECT_EQ(sink_positions_of(heads.at({0}, {0})), SinkPositions::kInCache);
  EXPECT_EQ(sink_positions_of(heads.at({1}, {0})), SinkPositions::kAbsolute);
  EXPECT_EQ(heads.window({2}, {1}), (KeyWindow{4, 12}));
}

TEST(HeadTable, RefusesParametersThatMakeNoSense) {
  EXPECT_THROW(streaming_heads(three_layers(), {4, 0}), Error);
  HeadRoles wider = mixed_roles();
  wider.n_kv_heads = 6;
  EXPECT_THROW(duo_attention_heads(three_layers(), wider), Error);
  ModelSpec other = three_layers();
  other.n_layers = 4;
  EXPECT_THROW(require_fits(dense_heads(three_layers()), other), Error);
  EXPECT_NO_THROW(require_fits(dense_heads(three_layers()), three_layers()));
}

TEST(HeadTable, ARingNeedsOneWindowALayer) {
  HeadTable heads = duo_attention_heads(three_layers(), mixed_roles());
  EXPECT_EQ(not_runnable_because(heads, RunsOn::kRing), "");
  heads.set({2}, {3}, {.see = SeeSinkRecent{7, 34}});
  EXPECT_EQ(not_runnable_because(heads, RunsOn::kOneRank), "");
  EXPECT_THAT(not_runnable_because(heads, RunsOn::kRing), HasSubstr("layer 2, KV head 3"));
  const HeadTable moved = streaming_heads(three_layers(), {7, 33, SinkPositions::kInCache});
  EXPECT_EQ(not_runnable_because(moved, RunsOn::kOneRank), "");
  EXPECT_EQ(not_runnable_because(moved, RunsOn::kRing), "");
}

TEST(HeadTable, ANewPartIsRefusedWithTheHeadThatAsksForIt) {
  HeadTable heads = dense_heads(three_layers());
  heads.set({2}, {1}, {.store = {.k = KvType::kInt8}});
  EXPECT_THAT(not_runnable_because(heads, RunsOn::kOneRank),
              HasSubstr("layer 2, KV head 1: cache types of its own"));
}

TEST(HeadTable, DescribesItselfInOneLine) {
  EXPECT_EQ(describe_briefly(HeadTable(2, 3)), "all 6 KV heads keep every token");
  EXPECT_EQ(describe(HeadTable(2, 3)), "all 6 KV heads keep every token; per layer: 3 3");
  EXPECT_EQ(describe(duo_attention_heads(three_layers(), mixed_roles())),
            "3 of 12 KV heads keep every token, the others the first 7 and last 33 or the "
            "first 0 and last 100; per layer: 2 0 1");
}

}  // namespace
}  // namespace longhaul
