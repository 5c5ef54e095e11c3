// What the planner chooses where nobody says stages, chunks or replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partition/check_plan.h"
#include "partition/cost_model.h"
#include "partition/explain.h"
#include "partition/make_plan.h"
#include "partition/split_ranks.h"
#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::first_heads;
using test::kGiB;
using test::million_tokens;
using testing::HasSubstr;

constexpr std::int64_t kTokens = 1'000'000;

// 8 nodes of 4 TFLOP/s with links of 1 Gbit/s, half of an 8B model's heads streaming.
PlanRequest eight_nodes() {
  PlanRequest request = million_tokens(equal_cluster(8, 128 * kGiB));
  for (RankSpec& rank : request.cluster.ranks) rank.gflops = 4000;
  request.cluster.link.between_hosts_gb_per_s = 0.125;
  request.cluster.speeds_known = true;
  request.workload.document_tokens = kTokens;
  request.options.n_replicas = 1;
  return request;
}

struct Found {
  Plan plan;
  double reading_min = 0;
};

Found make(const PlanRequest& request) {
  Found made{.plan = std::get<Plan>(make_plan(request))};
  PlanRequest checked = request;
  checked.workload.chunk_len = made.plan.chunk_len;
  EXPECT_THAT(check_plan(made.plan, request.spec, request.cluster, checked.workload),
              testing::IsEmpty());
  made.reading_min = prefill_document(made.plan, made.plan.replicas[0], request.spec,
                                      request.cluster, request.workload.document_tokens)
                         .seconds /
                     60;
  return made;
}

TEST(PlanSearch, TakesLongerChunksOrStagesWhereTheNetworkIsSlow) {
  PlanRequest request = eight_nodes();
  request.options.n_stages = 1;
  const double usual = make(request).reading_min;  // one ring, chunks of 8192
  EXPECT_NEAR(usual, 96.9, 1);
  request.options.n_stages = 2;
  const double stages = make(request).reading_min;
  EXPECT_NEAR(stages, 82.3, 1);
  request.options.n_stages = 1;
  request.workload.chunk_len = 65536;
  const double chunks = make(request).reading_min;
  EXPECT_NEAR(chunks, 78.9, 1);

  request = eight_nodes();
  request.options.chunk_lens = usual_chunk_lens(request.workload);
  const Found chosen = make(request);
  EXPECT_LE(chosen.reading_min, std::min({usual, stages, chunks}));
  const double bound = arithmetic_seconds(request.heads, chosen.plan.replicas[0], request.spec,
                                          request.cluster, kTokens) /
                       60;
  EXPECT_NEAR(bound, 75.6, 0.1);
  EXPECT_GE(chosen.reading_min, bound);
  request.workload.chunk_len = chosen.plan.chunk_len;
  const std::string text = explain(chosen.plan, request.spec, request.cluster, request.workload);
  EXPECT_THAT(text, testing::ContainsRegex("no plan takes less than +75.6 min"));
  EXPECT_THAT(text, HasSubstr("stops and checkpoints come between chunks"));
}

TEST(PlanSearch, KeepsTheUsualPlanWhereNothingElseIsBetter) {
  PlanRequest request = eight_nodes();
  request.cluster.link = {};
  request.cluster.link.between_hosts_gb_per_s = 12;
  request.options.chunk_lens = usual_chunk_lens(request.workload);
  const Plan plan = make(request).plan;
  EXPECT_EQ(plan.replicas[0].stages.size(), 1U);
  EXPECT_EQ(plan.chunk_len, request.workload.chunk_len);
}

TEST(PlanSearch, ShortensChunksWhereLongOnesDoNotFit) {
  PlanRequest request = eight_nodes();
  for (RankSpec& rank : request.cluster.ranks) rank.memory_bytes = 27 * kGiB;
  request.options.n_stages = 1;
  request.options.chunk_lens = usual_chunk_lens(request.workload);
  const std::int64_t chosen = make(request).plan.chunk_len;
  const std::int64_t longest = request.options.chunk_lens.back();
  request.workload.chunk_len = longest;
  EXPECT_FALSE(plan_fits(request));
  EXPECT_LT(chosen, longest);
}

TEST(PlanSearch, HostsThatAreNearBecomeNeighboursAndStages) {
  PlanRequest request = eight_nodes();
  request.cluster = equal_cluster(4, 128 * kGiB);
  request.cluster.link.between_hosts_gb_per_s = 1.2;
  // Two racks: nodes 0 and 2, nodes 1 and 3.
  for (const auto& [a, b] : {std::pair{0, 1}, {0, 3}, {2, 1}, {2, 3}})
    request.cluster.host_links.push_back(
        {"node-" + std::to_string(a), "node-" + std::to_string(b), 0.01, 500});
  EXPECT_EQ(ranks_by_host(request.cluster), (std::vector<Rank>{{0}, {2}, {1}, {3}}));
  const Plan plan = make(request).plan;
  ASSERT_EQ(plan.replicas[0].stages.size(), 2U);
  EXPECT_EQ(plan.replicas[0].stages[1].ring, (IndexedVector<RingPos, Rank>{{1}, {3}}));
  // The ring's slowest link is what a ring of all has; within a rack there is none such.
  const IndexedVector<RingPos, Rank> all{{0}, {2}, {1}, {3}};
  EXPECT_EQ(request.cluster.ring_wire(all).gb_per_s, 0.01);
  EXPECT_EQ(request.cluster.worst_wire(plan.replicas[0].stages[1].ring).gb_per_s, 1.2);
}

TEST(PlanSearch, NearestNeighboursOfManyHosts) {
  ClusterSpec cluster = equal_cluster(12, kGiB);
  for (int a = 0; a < 12; ++a) {
    for (int b = a + 1; b < 12; ++b) {
      if (a % 2 != b % 2)
        cluster.host_links.push_back(
            {"node-" + std::to_string(a), "node-" + std::to_string(b), 0.1, 30});
    }
  }
  EXPECT_EQ(ranks_by_host(cluster),
            (std::vector<Rank>{{0}, {2}, {4}, {6}, {8}, {10}, {1}, {3}, {5}, {7}, {9}, {11}}));
}

}  // namespace
}  // namespace longhaul
