#include "tools/job/deadlines.h"

#include <gtest/gtest.h>

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

TEST(Deadlines, ChunksGrowWithTheRanksUpToFour) {
  EXPECT_EQ(default_chunk_len(1), 2048);
  EXPECT_EQ(default_chunk_len(3), 3 * 2048);
  EXPECT_EQ(default_chunk_len(100), 4 * 2048);
}

}  // namespace
}  // namespace longhaul
