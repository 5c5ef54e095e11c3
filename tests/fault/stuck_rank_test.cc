// Ranks that are neither dead nor silent: one whose connection to the coordinator breaks, and one
// whose step thread hangs while its heartbeats go on; and a job that is suspended as a whole.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/fault/process_grip.h"
#include "tests/fault/ranked_job.h"
#include "tests/fault/result_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

class StuckRank : public test::RankedJob, public testing::WithParamInterface<int> {
 protected:
  void expect_that_the_rest_completes(const fs::path& output) {
    complete(output, {"--ranks", "2"});
    EXPECT_EQ(test::texts_of(output), undisturbed_texts());
  }
};

class SuspendedJob : public test::RankedJob {};

TEST_P(StuckRank, IsNamedWhenItsConnectionBreaks) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const fs::path output = folder() / "cut.jsonl";
  const auto mpirun = start_mpirun(3, output, {"--dead-after", "2"});
  wait_for_lines(*mpirun, output, random().integer(1, 6));
  const test::Grip grip = test::close_connection(test::process_of_rank(mpirun->pid(), GetParam()),
                                                 test::process_of_rank(mpirun->pid(), 0));
  if (grip == test::Grip::kNoRight) GTEST_SKIP() << "skipped: no right to trace other processes";
  ASSERT_EQ(grip, test::Grip::kDone) << mpirun->errors();
  const Stopwatch watch;
  EXPECT_EQ(mpirun->wait(), 75) << mpirun->errors();
  EXPECT_LT(watch.seconds(), 20) << mpirun->errors();
  EXPECT_THAT(mpirun->errors(), AnyOf(HasSubstr(fmt::format("error: rank {} is gone", GetParam())),
                                      HasSubstr(fmt::format("error: rank {} on ", GetParam()))));
  expect_that_the_rest_completes(output);
}

TEST_P(StuckRank, IsNamedWhenItsStepHangs) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const fs::path output = folder() / "hangs.jsonl";
  const auto mpirun = start_mpirun(3, output, {"--dead-after", "2", "--step-timeout", "4"});
  wait_for_lines(*mpirun, output, random().integer(1, 6));
  test::HeldThread thread(test::process_of_rank(mpirun->pid(), GetParam()));
  if (!thread.held()) GTEST_SKIP() << "skipped: no right to trace other processes";
  const Stopwatch watch;
  while (mpirun->running()) {
    thread.look_for_death();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(mpirun->wait(), 75) << mpirun->errors();
  EXPECT_LT(watch.seconds(), 24) << mpirun->errors();
  EXPECT_THAT(mpirun->errors(), HasSubstr("a step did not end before its deadline; "));
  EXPECT_THAT(mpirun->errors(), HasSubstr(fmt::format("rank {} on ", GetParam())));
  expect_that_the_rest_completes(output);
}

// What `scontrol suspend` does, and a laptop's lid: all processes stand still for longer than
// --dead-after, and each finds the others silent when it wakes.
TEST_F(SuspendedJob, GoesOn) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const fs::path output = folder() / "suspended.jsonl";
  const auto mpirun = start_mpirun(3, output, {"--dead-after", "1"});
  wait_for_lines(*mpirun, output, random().integer(1, 6));
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 3; ++rank)
    processes.push_back(test::process_of_rank(mpirun->pid(), rank));
  ASSERT_THAT(processes, testing::Each(testing::Gt(0))) << mpirun->errors();
  for (const pid_t process : processes) ::kill(process, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  std::shuffle(processes.begin(), processes.end(), random().engine());
  for (const pid_t process : processes) ::kill(process, SIGCONT);
  EXPECT_EQ(mpirun->wait(), 0) << mpirun->errors();
  EXPECT_EQ(test::texts_of(output), undisturbed_texts());
}

INSTANTIATE_TEST_SUITE_P(Rank, StuckRank, testing::Values(0, 1, 2),
                         [](const testing::TestParamInfo<int>& rank) {
                           return std::to_string(rank.param);
                         });

}  // namespace
}  // namespace longhaul
