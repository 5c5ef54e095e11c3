#include "base/work_clock.h"

#include <time.h>

namespace longhaul {
namespace {

clockid_t id_of(WorkClock clock) {
  switch (clock) {
    case WorkClock::kWall:
      return CLOCK_MONOTONIC;
    case WorkClock::kThreadCpu:
      return CLOCK_THREAD_CPUTIME_ID;
    case WorkClock::kProcessCpu:
      return CLOCK_PROCESS_CPUTIME_ID;
  }
  return CLOCK_MONOTONIC;
}

}  // namespace

std::string_view name_of(WorkClock clock) { return clock == WorkClock::kWall ? "wall" : "cpu"; }

double now_seconds(WorkClock clock) {
  timespec time{};
  ::clock_gettime(id_of(clock), &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace longhaul
