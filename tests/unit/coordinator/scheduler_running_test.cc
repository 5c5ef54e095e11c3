// Which of the requests that are known count as running.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "coordinator/scheduler.h"

namespace longhaul {
namespace {

TEST(Running, AreRequestsThatHaveRoomInTheBatch) {
  Scheduler scheduler({.chunk_len = 2, .max_sequences = 2, .budget = {}});
  JobGroup group;
  for (std::int64_t i = 0; i < 5; ++i) group.jobs.push_back({RequestId{i}, {9}, {}, 1, -1});
  scheduler.add(std::move(group));
  EXPECT_EQ(scheduler.n_running(), 0U);
  ASSERT_TRUE(scheduler.next());
  EXPECT_EQ(scheduler.n_running(), 2U);
}

}  // namespace
}  // namespace longhaul
