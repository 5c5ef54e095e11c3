// Every kind of damage to a good plan is found and named.
#include "partition/check_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::kGiB;
using test::million_tokens;
using testing::HasSubstr;

class CheckPlan : public testing::Test {
 protected:
  CheckPlan() : request_(million_tokens(equal_cluster(6, 40 * kGiB))) {
    request_.options.n_replicas = 1;
    request_.options.n_stages = 2;
    plan_ = std::get<Plan>(make_plan(request_));
  }
  // The first violation after `damage`.
  std::string after(const std::function<void(Plan&)>& damage) const {
    Plan plan = plan_;
    damage(plan);
    const auto found = check_plan(plan, request_.spec, request_.cluster, request_.workload);
    return found.empty() ? "nothing" : found.front();
  }
  static Stage& stage(Plan& plan, std::size_t s) { return plan.replicas[0].stages[s]; }
  PlanRequest request_;
  Plan plan_;
};

TEST_F(CheckPlan, AGoodPlanIsGood) {
  EXPECT_EQ(after([](Plan&) {}), "nothing");
}

TEST_F(CheckPlan, TwoWindowsInALayerOfRanksThatShareADocument) {
  EXPECT_THAT(after([](Plan& p) {
                p.heads.set({3}, {7}, {.see = SeeSinkRecent{0, 8}});
              }),
              HasSubstr("replica 0: layer 3, KV head 7: sees 0 + 8 tokens"));
}

TEST_F(CheckPlan, Layers) {
  EXPECT_THAT(after([](Plan& p) {
                --stage(p, 0).layers.end;
                stage(p, 0).home.pop_back();
              }),
              HasSubstr("after layer 15"));
  EXPECT_THAT(after([](Plan& p) { p.replicas[0].stages.pop_back(); }), HasSubstr("vocabulary"));
  EXPECT_THAT(after([](Plan& p) { p.replicas.clear(); }), HasSubstr("no replicas"));
  EXPECT_THAT(after([](Plan& p) { stage(p, 1).home.pop_back(); }), HasSubstr("15 layers instead"));
}

TEST_F(CheckPlan, Ranks) {
  EXPECT_THAT(after([](Plan& p) { stage(p, 1).ring[RingPos{0}] = Rank{0}; }),
              HasSubstr("two places"));
  EXPECT_THAT(after([](Plan& p) { stage(p, 1).ring[RingPos{0}] = Rank{6}; }),
              HasSubstr("not in the cluster"));
}

TEST_F(CheckPlan, TokenShares) {
  EXPECT_THAT(after([](Plan& p) { ++stage(p, 0).token_share[RingPos{0}]; }), HasSubstr("sum to"));
  EXPECT_THAT(after([](Plan& p) { stage(p, 0).token_share.pop_back(); }),
              HasSubstr("2 token shares for 3 ranks"));
}

TEST_F(CheckPlan, Homes) {
  EXPECT_THAT(after([](Plan& p) { stage(p, 0).home[2][KvHeadId{1}].shares.clear(); }),
              HasSubstr("layer 2 head 1: no home"));
  EXPECT_THAT(after([](Plan& p) {
                stage(p, 0).home[2][KvHeadId{1}].shares = {{Rank{5}, 1}};
              }),
              HasSubstr("home 5 is not in the ring"));
  EXPECT_THAT(after([](Plan& p) {
                stage(p, 0).home[0][KvHeadId{0}].shares = {{Rank{0}, 1}, {Rank{0}, 1}};
              }),
              HasSubstr("home 0 twice"));
  EXPECT_THAT(after([](Plan& p) {
                stage(p, 0).home[0][KvHeadId{0}].shares = {{Rank{0}, 0}};
              }),
              HasSubstr("weight 0"));
  EXPECT_THAT(after([](Plan& p) {
                stage(p, 0).home[0][KvHeadId{7}].shares = {{Rank{0}, 1}, {Rank{1}, 1}};
              }),
              HasSubstr("2 homes instead of one"));
}

TEST_F(CheckPlan, Slices) {
  EXPECT_THAT(after([](Plan& p) { ++stage(p, 0).ffn_slice[RingPos{1}].begin; }),
              HasSubstr("FFN slice"));
  EXPECT_THAT(after([](Plan& p) { --stage(p, 0).ffn_slice[RingPos{2}].end; }),
              HasSubstr("FFN slices end"));
  EXPECT_THAT(after([](Plan& p) {
                stage(p, 0).vocab_slice[RingPos{0}] = {0, 8};
              }),
              HasSubstr("vocabulary slices end at 8 instead of 0"));
}

TEST_F(CheckPlan, WeightsOfIntegersNeedWholeGroupsOfColumns) {
  const auto move = [](Plan& p, std::int64_t by) {
    stage(p, 0).ffn_slice[RingPos{0}].end += by;
    stage(p, 0).ffn_slice[RingPos{1}].begin += by;
  };
  for (const DType weights : {DType::kI8, DType::kI4}) {
    request_.workload.weight_dtype = weights;
    plan_ = std::get<Plan>(make_plan(request_));
    EXPECT_EQ(after([](Plan&) {}), "nothing");
    EXPECT_EQ(after([&](Plan& p) { move(p, 128); }), "nothing");
    EXPECT_THAT(after([&](Plan& p) { move(p, 64); }), HasSubstr("at multiples of 128"));
  }
}

TEST_F(CheckPlan, MemoryIsItemised) {
  request_.cluster.ranks[4].memory_bytes = 9 * kGiB;
  EXPECT_THAT(after([](Plan&) {}), HasSubstr("rank 4 needs"));
  EXPECT_THAT(after([](Plan&) {}), HasSubstr("retrieval cache"));
}

TEST_F(CheckPlan, Format) {
  EXPECT_THAT(after([](Plan& p) { p.kv.head_dim = 64; }), HasSubstr("head_dim"));
  EXPECT_THAT(after([](Plan& p) { p.kv.k_type = KvType::kF32; }), HasSubstr("KV format"));
  EXPECT_THAT(after([](Plan& p) { p.heads = HeadTable(3, 8); }), HasSubstr("heads of 3 layers"));
}

}  // namespace
}  // namespace longhaul
