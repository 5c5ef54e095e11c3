// The ways out of a job, whatever hangs: each ends a process, so each is a process of its own.
#include "tools/job/job_end.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "tools/job/exit_status.h"

namespace longhaul {
namespace {

using namespace std::chrono_literals;
using testing::ExitedWithCode;

constexpr JobEndLimits kShort{.all = 300ms, .writing = 50ms};

std::exception_ptr full_disk() {
  return std::make_exception_ptr(Error(ErrorCode::kIo, "the disk is full"));
}

class JobEndDeathTest : public testing::Test {
 protected:
  JobEndDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(JobEndDeathTest, SaysWhyAndEndsWithItsStatus) {
  EXPECT_EXIT(JobEnd("").fail(full_disk()), ExitedWithCode(kExitEnvironment), "the disk is full");
  EXPECT_EXIT(JobEnd("run it again").fail("rank 2 is gone"), ExitedWithCode(kExitStopped),
              "error: rank 2 is gone; run it again");
}

// As of other ranks that take nothing, or of a disk of logs.
TEST_F(JobEndDeathTest, WhatHangsOnTheWayOutHoldsItNoLongerThanTheLimit) {
  EXPECT_EXIT(
      {
        JobEnd end("", kShort);
        end.before([] {
          for (;;) std::this_thread::sleep_for(1h);
        });
        end.fail(full_disk());
      },
      ExitedWithCode(kExitStopped), "the disk is full");
}

TEST_F(JobEndDeathTest, AWriterThatHangsDoesNotHoldTheEnd) {
  EXPECT_EXIT(
      {
        JobEnd end("", kShort);
        std::atomic<bool> writes = false;
        std::thread([&] {
          end.writing().lock();
          writes = true;
          for (;;) std::this_thread::sleep_for(1h);
        }).detach();
        while (!writes) std::this_thread::sleep_for(1ms);
        end.fail(full_disk());
      },
      ExitedWithCode(kExitEnvironment), "the disk is full");
}

TEST_F(JobEndDeathTest, TheFirstCauseIsTheStatus) {
  EXPECT_EXIT(
      {
        JobEnd end("", {.all = 1min, .writing = 300ms});
        end.writing().lock();  // the first takes as long as a writer may
        std::atomic<bool> has_begun = false;
        end.before([&] { has_begun = true; });
        std::thread([&end] { end.fail(full_disk()); }).detach();
        while (!has_begun) std::this_thread::sleep_for(1ms);
        end.fail("rank 2 is gone");
      },
      ExitedWithCode(kExitEnvironment), "the disk is full");
}

}  // namespace
}  // namespace longhaul
