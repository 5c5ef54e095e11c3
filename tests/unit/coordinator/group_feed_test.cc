// Groups that are prepared beside the work.
#include "coordinator/group_feed.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"

namespace longhaul {
namespace {

using namespace std::chrono_literals;

// One that waited for a document which did not come was waited for by the end of its run.
TEST(GroupFeed, WhoWaitsIsToldThatNobodyTakesMore) {
  std::atomic<bool> waits = false;
  std::atomic<bool> was_told = false;
  {
    GroupFeed feed(2, [&](std::size_t i, const std::function<bool()>& is_over) -> PreparedGroup {
      if (i == 0) return {};
      waits = true;
      while (!is_over()) std::this_thread::sleep_for(1ms);
      was_told = true;
      throw Error(ErrorCode::kCancelled, "left");
    });
    EXPECT_TRUE(feed.take(deadline_in(60s)));
    EXPECT_FALSE(feed.take(deadline_in(10ms)));
    while (!waits) std::this_thread::sleep_for(1ms);
  }
  EXPECT_TRUE(was_told);
}

}  // namespace
}  // namespace longhaul
