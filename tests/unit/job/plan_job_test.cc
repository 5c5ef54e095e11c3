// Which plan a job gets, and when it gets none.
#include "tools/job/plan_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "partition/plan_json.h"
#include "tests/support/paths.h"
#include "tests/unit/job/plans.h"
#include "tools/job/plan_files.h"
#include "tools/job/plan_summary.h"

namespace longhaul {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string message_of(const std::function<void()>& work, ErrorCode code) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing was thrown";
}

// The least memory, of 16 MiB steps, with which a request fits two ranks.
std::int64_t least_memory(PlanRequest request) {
  std::int64_t memory = std::int64_t{1} << 24;
  for (;; memory += std::int64_t{1} << 24) {
    request.cluster = equal_cluster(2, memory, 2);
    if (plan_fits(request)) return memory;
  }
}

class PlanJob : public testing::Test {
 protected:
  PlanJob() : model_(test::spec_alone(test::tiny_model())) {
    const PlanRequest request = test::plan_request(model_.spec(), {});
    work_.model = &model_;
    work_.heads = dense_heads(request.spec);
    work_.workload = request.workload;
  }
  PlanRequest request(std::int64_t chunk_len, std::int64_t memory) const {
    PlanRequest request = test::plan_request(model_.spec(), equal_cluster(2, memory, 2));
    request.workload.document_tokens = 100'000;
    request.workload.chunk_len = chunk_len;
    return request;
  }

  test::TemporaryFolder folder_;
  ModelSource model_;
  JobWork work_;
};

TEST_F(PlanJob, ChunksStayAsLongAsTheyFit) {
  EXPECT_EQ(chunk_len_that_fits(request(8192, std::int64_t{1} << 40)), 8192);
}

TEST_F(PlanJob, ChunksAreHalvedUntilThePlanFits) {
  const std::int64_t memory = least_memory(request(2048, 1 << 24));
  const PlanRequest tight = request(65536, memory);
  ASSERT_FALSE(plan_fits(tight)) << "a chunk of 65536 tokens fits as well";
  const std::int64_t chunk_len = chunk_len_that_fits(tight);
  EXPECT_GE(chunk_len, 2048);
  EXPECT_LT(chunk_len, 65536);
  EXPECT_TRUE(plan_fits(request(chunk_len, memory)));
  EXPECT_FALSE(plan_fits(request(2 * chunk_len, memory)));
}

TEST_F(PlanJob, ChunksThatNeverFitStayAsTheyAre) {
  EXPECT_EQ(chunk_len_that_fits(request(8192, 1 << 20)), 8192);
  EXPECT_EQ(chunk_len_that_fits(request(100, 1 << 20)), 100);
}

TEST_F(PlanJob, AChunkThatWasAskedForDoesNotGiveWay) {
  const std::int64_t memory = least_memory(request(2048, 1 << 24));
  work_.workload = request(65536, memory).workload;
  JobConfig config;
  EXPECT_TRUE(
      plan_fits(request(new_plan(config, work_, equal_cluster(2, memory, 2)).chunk_len, memory)));
  config.chunk_len = 65536;
  EXPECT_THAT(message_of([&] { new_plan(config, work_, equal_cluster(2, memory, 2)); },
                         ErrorCode::kOutOfMemory),
              HasSubstr("does not fit"));
}

// As `longhaul plan` does for the same cluster: whatever device rank 0 has, and unless it is said.
TEST_F(PlanJob, ChunksAreLongerOnGpus) {
  PlanRequest of_cpus = request(1, std::int64_t{1} << 40);
  choose_chunks_by_cost(of_cpus);
  EXPECT_EQ(of_cpus.workload.chunk_len, 2 * 2048);
  PlanRequest of_gpus = request(1, std::int64_t{1} << 40);
  of_gpus.cluster.ranks.back().device = Device::kCuda;
  choose_chunks_by_cost(of_gpus);
  EXPECT_EQ(of_gpus.workload.chunk_len, 2 * 4096);
  JobConfig config;
  config.chunk_len = work_.workload.chunk_len = 300;
  EXPECT_EQ(new_plan(config, work_, of_gpus.cluster).chunk_len, 300);
}

TEST_F(PlanJob, TakesStagesAndReplicasFromTheConfig) {
  JobConfig config;
  config.n_replicas = 2;
  config.n_stages = 2;
  const Plan plan = new_plan(config, work_, equal_cluster(4, std::int64_t{1} << 34, 4));
  EXPECT_EQ(plan.replicas.size(), 2U);
  EXPECT_EQ(plan.replicas[0].stages.size(), 2U);
}

TEST_F(PlanJob, RefusesAClusterFileOfOtherRanks) {
  JobConfig config;
  config.cluster = test::source_path("tests/unit/partition/clusters/lopsided.toml");
  const std::int64_t n_ranks = read_cluster(config.cluster).n_ranks();
  const ClusterSpec found = equal_cluster(n_ranks + 1, std::int64_t{1} << 34, 1);
  EXPECT_THAT(message_of([&] { plan_job(config, work_, found); }, ErrorCode::kInvalidArgument),
              HasSubstr("start as many as it describes"));
}

TEST_F(PlanJob, TakesAPlanFromAFileUnlessItIsOfOtherHeads) {
  const ClusterSpec found = equal_cluster(2, std::int64_t{1} << 34, 2);
  JobConfig config;
  const Plan made = new_plan(config, work_, found);
  config.plan = folder_.path() / "plan.json";
  replace_file(config.plan, to_text(plan_to_json(made)));
  work_.n_threads = 3;
  const JobPlan job = plan_job(config, work_, found);
  EXPECT_EQ(*job.plan, made);
  EXPECT_EQ(job.n_threads, 3);
  EXPECT_THAT(summary(job, model_.spec(), work_.workload, {1.0}), Not(HasSubstr("nothing to do")));
  const JobPlan of_more = plan_job(config, work_, equal_cluster(3, std::int64_t{1} << 34, 3));
  EXPECT_THAT(summary(of_more, model_.spec(), work_.workload, {1.0}),
              HasSubstr("  1 rank has nothing to do in this plan\n"));

  work_.heads.set({0}, {0}, {.see = SeeSinkRecent{0, 64}});
  EXPECT_THAT(message_of([&] { plan_job(config, work_, found); }, ErrorCode::kInvalidArgument),
              HasSubstr("was made for other heads"));
}

TEST_F(PlanJob, RefusesAPlanThatDoesNotCarryTheWork) {
  const ClusterSpec found = equal_cluster(2, std::int64_t{1} << 34, 2);
  JobConfig config;
  config.plan = folder_.path() / "plan.json";
  replace_file(config.plan, to_text(plan_to_json(new_plan(JobConfig{}, work_, found))));
  const ClusterSpec small = equal_cluster(2, 1 << 20, 2);
  EXPECT_THAT(message_of([&] { plan_job(config, work_, small); }, ErrorCode::kOutOfMemory),
              HasSubstr("does not fit the memory of these ranks:\n  rank 0 needs"));
  const ClusterSpec fewer = equal_cluster(1, std::int64_t{1} << 34, 1);
  EXPECT_THAT(message_of([&] { plan_job(config, work_, fewer); }, ErrorCode::kInvalidArgument),
              HasSubstr("is no plan for this run"));
}

// The plan's lengths were taken without a word.
TEST_F(PlanJob, RefusesFlagsThatSayOtherLengthsThanThePlan) {
  const ClusterSpec found = equal_cluster(2, std::int64_t{1} << 34, 2);
  JobConfig config;
  config.chunk_len = work_.workload.chunk_len = 512;
  config.plan = folder_.path() / "plan.json";
  replace_file(config.plan, to_text(plan_to_json(new_plan(config, work_, found))));
  config.block_size = 64;
  EXPECT_EQ(block_size_of(config), 64);
  EXPECT_EQ(plan_job(config, work_, found).plan->chunk_len, 512);
  config.chunk_len = 1024;
  EXPECT_THAT(message_of([&] { plan_job(config, work_, found); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("--chunk-len 1024: "), HasSubstr("made for chunks of 512 tokens")));
  config.chunk_len = std::nullopt;
  config.block_size = 32;
  EXPECT_THAT(
      message_of([&] { plan_job(config, work_, found); }, ErrorCode::kInvalidArgument),
      AllOf(HasSubstr("--block-size 32: "), HasSubstr("made for cache blocks of 64 tokens")));
}

TEST_F(PlanJob, ThreadsComeFromFlagsThenClusterThenPlan) {
  JobConfig config;
  EXPECT_EQ(thread_ranks(config), std::nullopt);
  const Plan plan = new_plan(config, work_, equal_cluster(3, std::int64_t{1} << 34, 3));
  EXPECT_EQ(ranks_of(plan), 3);
  config.plan = folder_.path() / "plan.json";
  replace_file(config.plan, to_text(plan_to_json(plan)));
  EXPECT_EQ(thread_ranks(config), 3);
  config.cluster = test::source_path("tests/unit/partition/clusters/lopsided.toml");
  EXPECT_EQ(thread_ranks(config), read_cluster(config.cluster).n_ranks());
  config.n_ranks = 7;
  EXPECT_EQ(thread_ranks(config), 7);
  config = {};
  config.n_ranks = 1;  // asked for: planned like several
  EXPECT_EQ(thread_ranks(config), 1);
  config = {};
  config.n_stages = 9;  // once ignored without a word
  EXPECT_EQ(thread_ranks(config), 1);
  config = {};
  config.cluster = folder_.path() / "one.toml";
  replace_file(config.cluster, "[[node]]\nmemory = \"1 MiB\"\n");
  EXPECT_EQ(thread_ranks(config), 1);
}

}  // namespace
}  // namespace longhaul
