// What has no limit of its own is left when one is over, and not after it has come.
#include "base/last_wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace longhaul {
namespace {

using namespace std::chrono_literals;
using Left = std::atomic<bool>;

template <typename Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 60000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

TEST(LastWait, LeavesWhenNothingComes) {
  const auto has_left = std::make_shared<Left>(false);
  LastWait wait(20ms, [=] { *has_left = true; });
  wait.begin();
  EXPECT_TRUE(eventually([&] { return has_left->load(); }));
}

TEST(LastWait, EndsWithoutLeavingWhenItIsCalledOffOrItsScopeEnds) {
  const auto has_left = std::make_shared<Left>(false);
  {
    LastWait wait(1h, [=] { *has_left = true; });
    wait.begin();
    wait.call_off();
    LastWait another(1h, [=] { *has_left = true; });
    another.begin();
  }
  EXPECT_TRUE(eventually([&] { return has_left.use_count() == 1; })) << "their threads are there";
  EXPECT_FALSE(*has_left);
}

}  // namespace
}  // namespace longhaul
