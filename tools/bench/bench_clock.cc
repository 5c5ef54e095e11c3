#include "tools/bench/bench_clock.h"

#include <time.h>

namespace longhaul::bench {

std::string_view name_of(BenchClock clock) {
  switch (clock) {
    case BenchClock::kWall:
      return "wall";
    case BenchClock::kThreadCpu:
      return "cpu";
  }
  return "unknown";
}

double now_seconds(BenchClock clock) {
  timespec time{};
  ::clock_gettime(clock == BenchClock::kWall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace longhaul::bench
