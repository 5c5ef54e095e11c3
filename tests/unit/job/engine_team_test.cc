// Several replicas over workers without a model: one feed, one progress, answers one at a time.
#include "tools/job/engine_team.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "base/error.h"
#include "coordinator/requests.h"
#include "tests/support/paths.h"
#include "tests/unit/coordinator/fake_worker.h"

namespace longhaul {
namespace {

constexpr test::TokenRange kWords{260, 1000};

// A worker without a model behind a link, on a thread of its own.
class FakeReplica {
 public:
  // It leaves after `n_steps`.
  explicit FakeReplica(std::int64_t rank, int n_steps = 1 << 30) : worker_(kWords) {
    LinkPair pair = make_in_memory_link();
    link_ = std::move(pair.coordinator);
    thread_ = std::jthread(
        [this, rank, n_steps, end = std::shared_ptr<WorkerLink>(std::move(pair.worker))]() mutable {
          for (int i = 0; i < n_steps; ++i) {
            const auto command = end->next();
            if (!command) break;
            StepResult result = worker_.step(*command);
            if (std::holds_alternative<ReportRank>(*command))
              std::get<StepDone>(result).reports.emplace_back().rank = {rank};
            end->answer(std::move(result));
          }
          end.reset();
        });
  }
  ~FakeReplica() { link_.reset(); }
  Link& link() { return *link_; }

 private:
  test::FakeWorker worker_;
  std::unique_ptr<Link> link_;
  std::jthread thread_;
};

class EngineTeamTest : public testing::Test {
 protected:
  EngineTeamTest() : tokenizer_(Tokenizer::from_file(test::example_path("model/tokenizer.json"))) {
    preparation_ = {.defaults = {.params = {}, .max_tokens = 6},
                    .eos = {1},
                    .vocab_size = 1536,
                    .ctx_size = 4000,
                    .parse_special = false,
                    .n_threads = 1};
    for (std::size_t i = 0; i < 12; ++i) {
      const std::string line =
          fmt::format(R"({{"custom_id":"{}","method":"POST","url":"/v1/completions",)"
                      R"("body":{{"prompt":"Question {}"}}}})",
                      i, i);
      requests_.push_back(parse_requests(line, "r").requests.front());
      groups_.emplace_back().requests = {i};
    }
  }

  TeamResult run(const std::vector<Link*>& links) {
    GroupFeed feed(groups_.size(), [&](std::size_t i, const auto& /*is_over*/) {
      return prepare(groups_[i], requests_, tokenizer_, preparation_);
    });
    Progress progress({.group_bytes = {}, .n_requests = 12});
    EngineTeam team{.configs = std::vector<EngineConfig>(links.size()),
                    .links = links,
                    .tokenizer = &tokenizer_,
                    .feed = &feed,
                    .progress = &progress,
                    .callbacks = {},
                    .writing = &writing_,
                    .fail = [&](std::exception_ptr why) { failure_ = why; }};
    for (std::size_t r = 0; r < links.size(); ++r) {
      team.configs[r].lane = r;
      team.configs[r].max_unread = 2;
    }
    team.callbacks.on_done = [&](const PreparedRequest& prepared, const std::vector<Answer>&) {
      EXPECT_FALSE(writing_.try_lock()) << "the answer is not written under the lock";
      EXPECT_TRUE(done_.insert(prepared.index).second);
    };
    team.callbacks.stop_requested = [&] { return stops_.load(); };
    return run_engines(team);
  }

  Tokenizer tokenizer_;
  PreparationConfig preparation_;
  std::vector<Request> requests_;
  std::vector<RequestGroup> groups_;
  std::mutex writing_;
  std::set<std::size_t> done_;
  std::atomic<bool> stops_ = false;
  std::exception_ptr failure_;
};

TEST_F(EngineTeamTest, OneReplicaDoesEverything) {
  FakeReplica replica(4);
  const TeamResult result = run({&replica.link()});
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(done_.size(), 12U);
  ASSERT_EQ(result.reports.size(), 1U);
  EXPECT_EQ(result.reports[0].rank, Rank{4});
}

TEST_F(EngineTeamTest, ThreeReplicasShareTheRequests) {
  FakeReplica first(0), second(1), third(2);
  const TeamResult result = run({&first.link(), &second.link(), &third.link()});
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(done_.size(), 12U);
  std::vector<std::int64_t> ranks;
  for (const RankReport& report : result.reports) ranks.push_back(report.rank.value);
  EXPECT_THAT(ranks, testing::ElementsAre(0, 1, 2));
  EXPECT_FALSE(failure_);
}

TEST_F(EngineTeamTest, AStopLeavesWorkAndSaysSo) {
  stops_ = true;
  FakeReplica first(0), second(1);
  EXPECT_FALSE(run({&first.link(), &second.link()}).complete);
  EXPECT_LT(done_.size(), 12U);
}

TEST_F(EngineTeamTest, WhatALoneReplicaThrowsComesThrough) {
  FakeReplica replica(0, /*n_steps=*/3);
  EXPECT_THROW(run({&replica.link()}), Error);
}

TEST_F(EngineTeamTest, AReplicaThatFailsIsReportedAtOnce) {
  FakeReplica first(0, /*n_steps=*/0), second(1);
  run({&first.link(), &second.link()});
  ASSERT_TRUE(failure_);
  try {
    std::rethrow_exception(failure_);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
  }
}

TEST(AskForReports, ThrowsWhatTheRankFailedWith) {
  LinkPair pair = make_in_memory_link();
  pair.worker->answer(StepFailed{.code = ErrorCode::kIo, .message = "no disk"});
  try {
    ask_for_reports(*pair.coordinator);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_STREQ(error.what(), "no disk");
  }
}

}  // namespace
}  // namespace longhaul
