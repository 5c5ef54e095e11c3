#include "cluster/wire/group_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "base/error.h"

namespace longhaul {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

StepDone done_with(std::size_t kv_bytes, double seconds) {
  StepDone done;
  done.kv_bytes_in_use = kv_bytes;
  done.seconds = seconds;
  return done;
}

RankResult from(std::int64_t rank, StepResult result) {
  return {{Rank{rank}, "node" + std::to_string(rank)}, std::move(result)};
}

StepFailed failure(ErrorCode code, const std::string& message) { return {code, message}; }

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::kInternal, "nothing"};
}

TEST(MergeResults, SumsBytesAndTakesTheSlowestAndTheTokensOfWhoeverHasThem) {
  StepDone last = done_with(30, 0.5);
  last.picked.push_back({SequenceId{7}, 42, -1.0F, {}});
  last.scored.push_back({SequenceId{7}, 41, -2.0F, {}});
  const StepResult merged =
      merge_results({from(0, done_with(10, 0.25)), from(1, done_with(20, 2.0)), from(2, last)});
  const auto& done = std::get<StepDone>(merged);
  EXPECT_EQ(done.kv_bytes_in_use, 60U);
  EXPECT_EQ(done.seconds, 2.0);
  ASSERT_EQ(done.picked.size(), 1U);
  EXPECT_EQ(done.picked.front().token, 42);
  ASSERT_EQ(done.scored.size(), 1U);
  EXPECT_EQ(done.scored.front().token, 41);
}

TEST(MergeResults, OrdersAndNamesReportsByRank) {
  std::vector<RankResult> results;
  for (const std::int64_t rank : {4, 1, 3}) {
    StepDone done;
    done.reports.emplace_back();
    done.reports.back().weight_bytes = 100 + rank;
    results.push_back(from(rank, done));
  }
  const StepResult merged = merge_results(std::move(results));
  const auto& reports = std::get<StepDone>(merged).reports;
  ASSERT_EQ(reports.size(), 3U);
  for (const std::size_t i : {0U, 1U, 2U}) {
    EXPECT_EQ(reports[i].rank.value, std::vector<std::int64_t>({1, 3, 4})[i]);
    EXPECT_EQ(reports[i].weight_bytes, 100 + reports[i].rank.value);
  }
}

TEST(MergeResults, OrdersAndNamesRatesByRank) {
  std::vector<RankResult> results;
  for (const std::int64_t rank : {4, 1}) {
    StepDone done;
    done.rates.push_back({.rank = {}, .rates = {.read_bytes = 10.0 * static_cast<double>(rank)}});
    results.push_back(from(rank, done));
  }
  const StepResult merged = merge_results(std::move(results));
  const auto& rates = std::get<StepDone>(merged).rates;
  ASSERT_EQ(rates.size(), 2U);
  EXPECT_EQ(rates[0].rank.value, 1);
  EXPECT_EQ(rates[0].rates.read_bytes, 10);
  EXPECT_EQ(rates[1].rank.value, 4);
  EXPECT_EQ(rates[1].rates.read_bytes, 40);
}

TEST(MergeResults, AFailureThatAllAgreeOnIsAFailedStep) {
  const auto full = failure(ErrorCode::kOutOfMemory, "the KV cache is full");
  const StepResult merged = merge_results({from(0, full), from(1, full)});
  EXPECT_EQ(std::get<StepFailed>(merged).code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(std::get<StepFailed>(merged).message, "rank 0 on node0: the KV cache is full");
}

TEST(MergeResults, OneRankSpeaksForItself) {
  const StepResult merged =
      merge_results({from(0, failure(ErrorCode::kInvalidArgument, "token 9 is not there"))});
  EXPECT_EQ(std::get<StepFailed>(merged).message, "token 9 is not there");
}

// A rank that cannot write its trace, say, says so in the place of an answer: no request failed.
TEST(MergeResults, ARankThatLeavesEndsTheJobWhateverItsReason) {
  StepFailed leaves = failure(ErrorCode::kInvalidArgument, "there is no folder none");
  leaves.ends_job = true;
  const Error error = error_of([&] { merge_results({from(1, leaves)}); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_STREQ(error.what(), "there is no folder none");
}

TEST(MergeResults, ABrokenRingEndsTheReplicaAndNamesTheCause) {
  const Error error = error_of([] {
    merge_results({from(0, failure(ErrorCode::kPeerFailed, "rank 2: no memory")),
                   from(1, failure(ErrorCode::kTimeout, "waited for rank 2")),
                   from(2, failure(ErrorCode::kOutOfMemory, "no memory"))});
  });
  EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  EXPECT_STREQ(error.what(), "rank 2 on node2: no memory");
  const Error lost = error_of([] {
    merge_results(
        {from(0, StepDone{}), from(1, failure(ErrorCode::kTimeout, "waited for rank 0"))});
  });
  EXPECT_EQ(lost.code(), ErrorCode::kTimeout);
  EXPECT_STREQ(lost.what(), "rank 1 on node1: waited for rank 0");
}

// Three workers on threads; each answers every command until told to stop.
class GroupOfThree : public testing::Test {
 protected:
  explicit GroupOfThree() {
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      LinkPair pair = make_in_memory_link("rank " + std::to_string(rank));
      members_.push_back({{Rank{rank}, "host"}, std::move(pair.coordinator)});
      workers_.emplace_back([this, rank, link = std::move(pair.worker)]() mutable {
        while (const auto command = link->next()) {
          const std::optional<StepResult> result = answer_(rank, *command);
          if (!result) return link.reset();
          link->answer(*result);
        }
      });
    }
  }
  ~GroupOfThree() override {
    members_.clear();
    group_.reset();
    for (std::thread& worker : workers_) worker.join();
  }
  GroupLink& group() {
    if (!group_) group_ = std::make_unique<GroupLink>(std::move(members_));
    return *group_;
  }

  // nullopt: the worker stops.
  std::function<std::optional<StepResult>(std::int64_t rank, const StepCommand&)> answer_;
  std::vector<GroupLink::Member> members_;
  std::unique_ptr<GroupLink> group_;
  std::vector<std::thread> workers_;
};

TEST_F(GroupOfThree, EveryRankGetsEveryCommandInOrder) {
  answer_ = [](std::int64_t rank, const StepCommand& command) -> std::optional<StepResult> {
    const std::size_t n_tokens = std::get<PrefillChunk>(command).tokens.size();
    // The last rank is the slowest for the first command: answers of one are never merged with
    // answers of another.
    if (rank == 2 && n_tokens == 1) std::this_thread::sleep_for(20ms);
    return done_with(n_tokens, static_cast<double>(rank));
  };
  for (std::size_t n = 1; n <= 20; ++n)
    group().send(PrefillChunk{{1}, std::vector<std::int32_t>(n), AfterPrefill::kNothing, -1});
  for (std::size_t n = 1; n <= 20; ++n) {
    const StepResult result = group().receive(deadline_in(60s));
    EXPECT_EQ(std::get<StepDone>(result).kv_bytes_in_use, 3 * n);
    EXPECT_EQ(std::get<StepDone>(result).seconds, 2.0);
  }
}

TEST_F(GroupOfThree, NamesTheRankThatStopped) {
  answer_ = [](std::int64_t rank, const StepCommand&) -> std::optional<StepResult> {
    if (rank == 1) return std::nullopt;
    return StepDone{};
  };
  group().send(ReportRank{});
  const Error error = error_of([&] { group().receive(deadline_in(60s)); });
  EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
  EXPECT_STREQ(error.what(), "rank 1 has stopped");
}

TEST_F(GroupOfThree, NamesTheRankThatDoesNotAnswerInTime) {
  // Outlives this function: rank 2 may look at it once more.
  const auto go_on = std::make_shared<std::atomic<bool>>(false);
  answer_ = [go_on](std::int64_t rank, const StepCommand&) -> std::optional<StepResult> {
    while (rank == 2 && !*go_on) std::this_thread::sleep_for(1ms);
    return StepDone{};
  };
  group().send(ReportRank{});
  const Error error = error_of([&] { group().receive(deadline_in(100ms)); });
  *go_on = true;
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_THAT(error.what(), HasSubstr("rank 2 did not answer"));
}

}  // namespace
}  // namespace longhaul
