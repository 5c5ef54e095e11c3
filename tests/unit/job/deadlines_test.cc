#include "tools/job/deadlines.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "tools/job/time_limit.h"

namespace longhaul {
namespace {

using namespace std::chrono_literals;

TEST(Deadlines, RanksWaitLongerThanTheCoordinator) {
  JobConfig config;
  config.step_timeout = 60s;
  config.dead_after = 7s;
  EXPECT_EQ(transfer_deadline(config), 77s);
}

TEST(Deadlines, HeartbeatsComeOftenEnough) {
  JobConfig config;
  EXPECT_EQ(control_times(config).dead_after, 30s);
  EXPECT_EQ(control_times(config).heartbeat_period, 1s);
  config.dead_after = 2s;
  EXPECT_EQ(control_times(config).heartbeat_period, 400ms);
}

TEST(TimeLimit, LeavesTimeToLeave) {
  const Deadline now = Clock::now();
  const TimeLimit limit(now, now + 1h);
  EXPECT_FALSE(limit.is_over(now + 58min));
  EXPECT_TRUE(limit.is_over(now + 59min));
  EXPECT_TRUE(limit.allows(now, 3200));  // of 3540 seconds
  EXPECT_FALSE(limit.allows(now, 3300));
  EXPECT_FALSE(limit.allows(now + 58min, 60));
  // A short job keeps a tenth; one whose time is over ends at once.
  EXPECT_FALSE(TimeLimit(now, now + 60s).is_over(now + 53s));
  EXPECT_TRUE(TimeLimit(now, now + 60s).is_over(now + 54s));
  EXPECT_TRUE(TimeLimit(now, now - 5s).is_over(now));
}

TEST(TimeLimit, CountsFromTheClockOfTheDay) {
  EXPECT_EQ(end_of_job(std::nullopt), std::nullopt);
  const auto unix_now = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  const Deadline end = *end_of_job(unix_now + 100);
  EXPECT_GT(end, Clock::now() + 90s);
  EXPECT_LT(end, Clock::now() + 110s);
  EXPECT_GT(*end_of_job(std::numeric_limits<std::int64_t>::max()), Clock::now() + 1h);
  EXPECT_TRUE(TimeLimit(Clock::now(), *end_of_job(1)).is_over(Clock::now()));
}

TEST(Deadlines, ChunksGrowWithTheRanksUpToFourAndAreLongerOnGpus) {
  EXPECT_EQ(default_chunk_len(1, Device::kCpu), 2048);
  EXPECT_EQ(default_chunk_len(3, Device::kCpu), 3 * 2048);
  EXPECT_EQ(default_chunk_len(100, Device::kCpu), 4 * 2048);
  EXPECT_EQ(default_chunk_len(1, Device::kCuda), 4096);
  EXPECT_EQ(default_chunk_len(100, Device::kCuda), 4 * 4096);
  JobConfig job;
  EXPECT_EQ(usual_chunk_len(job, 2), 2 * 2048);
  job.device = DeviceChoice::kCuda;
  EXPECT_EQ(usual_chunk_len(job, 2), 2 * 4096);
  job.chunk_len = 300;
  EXPECT_EQ(usual_chunk_len(job, 2), 300);
}

}  // namespace
}  // namespace longhaul
