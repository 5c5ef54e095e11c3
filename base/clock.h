// Monotonic time for durations and deadlines. Wall-clock time is used for log lines only.
#pragma once
#include <chrono>

namespace longhaul {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

inline Deadline deadline_in(std::chrono::milliseconds duration) { return Clock::now() + duration; }

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double milliseconds() const { return seconds() * 1e3; }

 private:
  Clock::time_point start_ = Clock::now();
};

}  // namespace longhaul
