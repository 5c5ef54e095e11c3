// How a replica's engine keeps within its plan.
#include "tools/job/engine_config.h"

#include <gtest/gtest.h>

#include "tests/unit/job/plans.h"

namespace longhaul {
namespace {

class EngineConfigTest : public testing::Test {
 protected:
  EngineConfigTest() {
    KvBudget& budget = base_.scheduler.budget;
    const ModelSpec spec = test::tiny_model();
    budget.heads = dense_heads(spec);
    budget.bytes_per_head_and_token = static_cast<std::size_t>(spec.head_dim * 2 * 2);
    budget.block_size = 16;
    base_.scheduler.chunk_len = 1;
  }
  EngineConfig config(std::int64_t memory, std::int64_t n_ranks = 2, std::size_t replica = 0) {
    PlanRequest request =
        test::plan_request(test::tiny_model(), equal_cluster(n_ranks, memory, n_ranks));
    request.options.n_replicas = n_replicas_;
    request.options.n_stages = n_stages_;
    request.workload.chunk_len = 512;
    workload_ = request.workload;
    return engine_config(base_, request.spec, test::job_plan(request), workload_, replica);
  }
  // Of the workload that the plan was made for.
  std::size_t planned_bytes(const KvBudget& budget) const {
    const std::int64_t fork = (workload_.document_blocks() + 1) * budget.block_size - 1;
    return budget.bytes_for({0, workload_.document_tokens}) +
           static_cast<std::size_t>(workload_.n_sequences) *
               budget.bytes_for({fork, fork + workload_.tail_tokens});
  }

  EngineConfig base_;
  Workload workload_;
  std::int64_t n_replicas_ = 1;
  std::int64_t n_stages_ = 1;
};

TEST_F(EngineConfigTest, ChunksAndBlocksAreThePlans) {
  const EngineConfig got = config(std::int64_t{1} << 34);
  EXPECT_EQ(got.scheduler.chunk_len, 512);
  EXPECT_EQ(got.scheduler.budget.chunk_len, 512);
  EXPECT_EQ(got.scheduler.budget.block_size, workload_.block_size);
}

TEST_F(EngineConfigTest, OneCommandMoreThanStagesIsUnderWay) {
  EXPECT_EQ(config(std::int64_t{1} << 34).n_ahead, 2U);
  n_stages_ = 4;
  EXPECT_EQ(config(std::int64_t{1} << 34, 4).n_ahead, 5U);
}

TEST_F(EngineConfigTest, OnlyOneOfSeveralReplicasHoardsNoDocuments) {
  EXPECT_EQ(config(std::int64_t{1} << 34).max_unread, EngineConfig{}.max_unread);
  n_replicas_ = 2;
  const EngineConfig second = config(std::int64_t{1} << 34, 2, 1);
  EXPECT_EQ(second.lane, 1U);
  EXPECT_EQ(second.max_unread, 2U);
}

TEST_F(EngineConfigTest, TheBudgetGrowsWithTheMemoryThatIsFree) {
  const EngineConfig tight = config(std::int64_t{1} << 28);
  const EngineConfig roomy = config(std::int64_t{1} << 32);
  EXPECT_GE(tight.scheduler.budget.limit_bytes, planned_bytes(tight.scheduler.budget));
  EXPECT_GT(roomy.scheduler.budget.limit_bytes, tight.scheduler.budget.limit_bytes);
  // Never more than the ranks have.
  EXPECT_LE(roomy.scheduler.budget.limit_bytes, std::size_t{2} << 32);
}

TEST_F(EngineConfigTest, TheUsersLimitHolds) {
  base_.scheduler.budget.limit_bytes = 1000;
  EXPECT_EQ(config(std::int64_t{1} << 34).scheduler.budget.limit_bytes, 1000U);
}

}  // namespace
}  // namespace longhaul
