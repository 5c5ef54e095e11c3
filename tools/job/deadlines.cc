#include "tools/job/deadlines.h"

#include <algorithm>

namespace longhaul {

std::chrono::milliseconds transfer_deadline(const JobConfig& config) {
  return config.step_timeout + config.dead_after + std::chrono::seconds(10);
}

ControlTimes control_times(const JobConfig& config) {
  ControlTimes times;
  times.dead_after = config.dead_after;
  times.heartbeat_period = std::min(times.heartbeat_period, times.dead_after / 5);
  return times;
}

}  // namespace longhaul
