#include "partition/standing.h"

#include <gtest/gtest.h>

#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

TEST(Standing, EveryRankOfAPlanHasOne) {
  PlanRequest request;
  request.spec = test::tiny_model();
  request.heads = dense_heads(request.spec);
  request.cluster = equal_cluster(8, std::int64_t{1} << 34, 4);
  request.workload.document_tokens = 5000;
  request.options.n_replicas = 2;
  request.options.n_stages = 2;
  const Plan plan = std::get<Plan>(make_plan(request));
  for (std::int64_t r = 0; r < 8; ++r) {
    const auto standing = standing_of(plan, Rank{r});
    ASSERT_TRUE(standing) << r;
    const Stage& stage = standing->stage_of(plan);
    EXPECT_EQ(stage.ring.at(standing->position), Rank{r});
    EXPECT_EQ(&stage, &plan.replicas.at(static_cast<std::size_t>(standing->replica))
                           .stages.at(static_cast<std::size_t>(standing->stage)));
  }
  EXPECT_FALSE(standing_of(plan, Rank{8}));
  EXPECT_FALSE(standing_of(plan, Rank{}));
}

}  // namespace
}  // namespace longhaul
