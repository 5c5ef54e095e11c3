#include "worker/phase_clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace longhaul {
namespace {

void pass(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(PhaseClock, CountsEachMomentOnce) {
  PhaseClock clock(StreamRef::cpu());
  const Stopwatch all;
  {
    const PhaseTimer attend(clock, Phase::kAttend);
    pass(2);
    {
      const PhaseTimer wait(clock, Phase::kRingWait);
      pass(3);
    }
    pass(2);
  }
  clock.end_step();
  const double seconds = all.seconds();
  pass(1);
  const PhaseTimes& times = clock.total();
  EXPECT_GE(times[Phase::kAttend], 0.004);
  EXPECT_GE(times[Phase::kRingWait], 0.003);
  EXPECT_LE(times[Phase::kAttend] + times[Phase::kRingWait], seconds);
  EXPECT_EQ(times[Phase::kPick], 0);
}

}  // namespace
}  // namespace longhaul
