// Waits for files that do not come are spoken of, and end with a stop or at a limit.
#include "base/file_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"

namespace longhaul {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Rules whose end is noted instead of ending the process.
class NotedEnd {
 public:
  FileWaitRules rules() {
    FileWaitRules rules;
    rules.say_every = 1h;
    rules.end = [this](std::exception_ptr why) {
      const std::lock_guard lock(mutex_);
      whys_.push_back(why);
      changed_.notify_all();
    };
    return rules;
  }
  // The first; blocks until it is there.
  Error await() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, 60s, [this] { return !whys_.empty(); }))
      return {ErrorCode::kInternal, "no end came"};
    try {
      std::rethrow_exception(whys_.front());
    } catch (const Error& error) {
      return error;
    }
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return whys_.size();
  }

 private:
  std::mutex mutex_;  // guards whys_
  std::condition_variable changed_;
  std::vector<std::exception_ptr> whys_;
};

// SIGTERM was not heard while a model's files were opened on a server that did not answer.
TEST(FileWait, AStopEndsIt) {
  std::atomic<bool> stops = false;
  NotedEnd end;
  FileWaitRules rules = end.rules();
  rules.stop_requested = [&] { return stops.load(); };
  rules.before_work_after_stop = 1ms;
  rules.where = [] { return " on rank 3"; };
  const FileWaitPolicy policy(rules);
  const FileWait wait(FileUse::kReadingBeforeWork, "models/llama");
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(end.count(), 0U) << "nobody asked for a stop yet";
  stops = true;
  const Error why = end.await();
  EXPECT_EQ(why.code(), ErrorCode::kCancelled);
  EXPECT_THAT(why.what(), HasSubstr("stopped before models/llama on rank 3 was read"));
}

TEST(FileWait, WorkUnderWayHasMoreTimeAfterAStop) {
  NotedEnd end;
  FileWaitRules rules = end.rules();
  rules.stop_requested = [] { return true; };
  rules.before_work_after_stop = 1ms;
  rules.at_work_after_stop = 1h;
  const FileWaitPolicy policy(rules);
  {
    const FileWait wait(FileUse::kWriting, "results.jsonl");
    std::this_thread::sleep_for(700ms);
  }
  EXPECT_EQ(end.count(), 0U);
}

// Nobody read what was written to a pipe: SIGTERM was not heard.
TEST(FileWait, OfAStreamHasNoLimitButEndsWithAStop) {
  std::atomic<bool> stops = false;
  NotedEnd end;
  FileWaitRules rules = end.rules();
  rules.limit = 1ms;
  rules.at_work_after_stop = 1ms;
  rules.stop_requested = [&] { return stops.load(); };
  const FileWaitPolicy policy(rules);
  const FileWait wait(FileUse::kStream, "standard output");
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(end.count(), 0U);
  stops = true;
  EXPECT_EQ(end.await().code(), ErrorCode::kCancelled);
}

TEST(FileWait, EndsAtTheLimitOnce) {
  NotedEnd end;
  FileWaitRules rules = end.rules();
  rules.limit = 1ms;
  rules.limit_name = "--step-timeout";
  const FileWaitPolicy policy(rules);
  const FileWait wait(FileUse::kWriting, "results.jsonl");
  const Error why = end.await();
  EXPECT_EQ(why.code(), ErrorCode::kTimeout);
  EXPECT_THAT(why.what(), HasSubstr("results.jsonl has not been written for "));
  EXPECT_THAT(why.what(), HasSubstr("(--step-timeout): its disk or server does not answer"));
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(end.count(), 1U);
}

TEST(FileWait, IsSpokenOfOnceForAllThreadsThatWaitForTheSame) {
  std::atomic<int> n_said = 0;
  FileWaitRules rules;
  rules.say_every = 2s;
  rules.where = [&] {
    ++n_said;
    return " on rank 3";
  };
  testing::internal::CaptureStderr();
  {
    const FileWaitPolicy policy(rules);
    const auto wait = [&] {
      const FileWait outer(FileUse::kReadingBeforeWork, "models/llama");
      const FileWait inner(FileUse::kReadingAtWork, "models/llama/config.json");
      while (n_said == 0) std::this_thread::sleep_for(1ms);
    };
    const std::jthread other(wait);
    wait();
  }
  EXPECT_EQ(n_said, 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::StartsWith("longhaul: still waiting for models/llama on rank 3 ("));
}

TEST(FileWait, OfAFollowerIsSilent) {
  FileWaitRules rules;
  rules.say_every = 1ms;
  rules.speaks = false;
  const FileWaitPolicy policy(rules);
  testing::internal::CaptureStderr();
  {
    const FileWait wait(FileUse::kReadingBeforeWork, "models/llama");
    std::this_thread::sleep_for(500ms);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(FileWait, WhatHeldBeforeAPolicyHoldsAfterIt) {
  NotedEnd end;
  FileWaitRules rules = end.rules();
  rules.limit = 1ms;
  const FileWaitPolicy outer(rules);
  { const FileWaitPolicy inner{FileWaitRules{}}; }
  const FileWait wait(FileUse::kWriting, "results.jsonl");
  EXPECT_EQ(end.await().code(), ErrorCode::kTimeout);
}

}  // namespace
}  // namespace longhaul
