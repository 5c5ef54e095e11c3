#include "tools/job/time_limit.h"

#include <algorithm>
#include <chrono>

namespace longhaul {
namespace {

// The most that is kept for saving and leaving.
constexpr std::chrono::minutes kLastMinute{1};

}  // namespace

std::optional<Deadline> end_of_job(std::optional<std::int64_t> unix_seconds) {
  if (!unix_seconds) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 33;  // durations do not overflow
  const std::chrono::sys_seconds end{std::chrono::seconds(std::min(*unix_seconds, kMost))};
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(end - std::chrono::system_clock::now());
}

std::string if_time_is_over(std::optional<std::int64_t> unix_seconds) {
  const std::optional<Deadline> end = end_of_job(unix_seconds);
  if (!end || *end - Clock::now() > kLastMinute) return "";
  return " (the job's time is over: --end-time, or SLURM_JOB_END_TIME)";
}

TimeLimit::TimeLimit(Deadline now, Deadline end) {
  const Clock::duration left = std::max(Clock::duration::zero(), end - now);
  stop_ = end - std::min<Clock::duration>(kLastMinute, left / 10);
}

bool TimeLimit::allows(Deadline now, double seconds) const {
  return std::chrono::duration<double>(stop_ - now).count() >= 1.1 * seconds;
}

}  // namespace longhaul
