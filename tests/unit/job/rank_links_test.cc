// The links of a plan's replicas: who is in which, and that everybody hears of the end.
#include "tools/job/rank_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/error.h"
#include "tests/unit/job/plans.h"
#include "tools/job/exit_status.h"

namespace longhaul {
namespace {

using testing::ElementsAre;

JobPlan two_replicas_of_five_ranks() {
  PlanRequest request =
      test::plan_request(test::tiny_model(), equal_cluster(5, std::int64_t{1} << 34, 5));
  request.options.n_replicas = 2;
  request.options.n_stages = 2;
  return test::job_plan(request);
}

TEST(RankGroups, EveryRankIsInOneReplicaOrIdle) {
  const JobPlan job = two_replicas_of_five_ranks();
  const RankGroups groups = rank_groups(*job.plan, 7);
  ASSERT_EQ(groups.replicas.size(), 2U);
  std::vector<std::int64_t> seen;
  for (const auto& replica : groups.replicas) {
    for (const Rank rank : replica) seen.push_back(rank.value);
  }
  for (const Rank rank : groups.idle) seen.push_back(rank.value);
  EXPECT_THAT(seen, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_GE(groups.idle.size(), 2U);
}

TEST(RankGroups, StagesComeInTheirOrder) {
  Plan plan = *two_replicas_of_five_ranks().plan;
  plan.replicas.resize(1);
  plan.replicas[0].stages[0].ring = {Rank{3}, Rank{1}};
  plan.replicas[0].stages[1].ring = {Rank{0}};
  const RankGroups groups = rank_groups(plan, 4);
  EXPECT_THAT(groups.replicas[0], ElementsAre(Rank{3}, Rank{1}, Rank{0}));
  EXPECT_THAT(groups.idle, ElementsAre(Rank{2}));
}

// Ranks that answer every command and count them.
class DriveRanks : public testing::Test {
 protected:
  DriveRanks() : job_(two_replicas_of_five_ranks()), end_("") {
    for (std::size_t r = 0; r < n_commands_.size(); ++r) {
      LinkPair pair = make_in_memory_link();
      coordinator_ends_.push_back(std::move(pair.coordinator));
      threads_.emplace_back([this, r, link = std::shared_ptr<WorkerLink>(std::move(pair.worker))] {
        while (const auto command = link->next()) {
          ++n_commands_[r];
          const bool is_last = std::holds_alternative<Shutdown>(*command);
          if (is_last && static_cast<int>(r) == cannot_end_) {
            link->answer(StepFailed{.code = ErrorCode::kIo, .message = "no room for the trace"});
          } else {
            StepDone done;
            done.reports.emplace_back().rank = {static_cast<std::int64_t>(r)};
            link->answer(done);
          }
          if (is_last) {
            was_told_[r] = true;
            return;
          }
        }
      });
    }
    links_.hosts = {"a", "a", "b", "b", "b"};
    links_.link = [this](Rank rank) {
      return std::move(coordinator_ends_[static_cast<std::size_t>(rank.value)]);
    };
  }

  JobPlan job_;
  JobEnd end_;
  RankLinks links_;
  std::array<int, 5> n_commands_{};
  std::array<bool, 5> was_told_{};
  std::atomic<int> cannot_end_ = -1;  // the rank that answers Shutdown so
  std::vector<std::jthread> threads_;
  std::vector<std::unique_ptr<Link>> coordinator_ends_;  // gone before the threads are joined
};

TEST_F(DriveRanks, EachReplicaAnswersAsOneAndAllHearOfTheEnd) {
  Workload workload;
  workload.chunk_len = 1;  // the plan says another
  drive_ranks(job_, workload, links_, end_, [&](JobRun& run) {
    EXPECT_EQ(run.job, &job_);
    EXPECT_EQ(run.workload.chunk_len, job_.plan->chunk_len);
    EXPECT_THAT(run.hosts, ElementsAre("a", "a", "b", "b", "b"));
    ASSERT_EQ(run.replicas.size(), 2U);
    run.replicas[1]->send(ReportRank{});
    const auto done =
        std::get<StepDone>(run.replicas[1]->receive(deadline_in(std::chrono::minutes(5))));
    std::size_t n_ranks = 0;
    for (const Stage& stage : job_.plan->replicas[1].stages) n_ranks += stage.ring.size();
    EXPECT_EQ(done.reports.size(), n_ranks);
  });
  threads_.clear();  // joins
  EXPECT_THAT(was_told_, testing::Each(true));
  int n_commands = 0;
  for (const int n : n_commands_) n_commands += n;
  EXPECT_GT(n_commands, 5 + 1);
}

using DriveRanksDeathTest = DriveRanks;

// It was not looked at.
TEST_F(DriveRanksDeathTest, ARankThatCannotEndItsWorkEndsTheJobWithItsCause) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        cannot_end_ = 1;
        drive_ranks(job_, {}, links_, end_, [](JobRun&) {});
      },
      testing::ExitedWithCode(kExitEnvironment), "no room for the trace");
}

}  // namespace
}  // namespace longhaul
