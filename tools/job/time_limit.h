// The end of a batch job's time: no work is begun that cannot be done by then, and what is under
// way stops early enough to be kept. Counted on a clock that does not jump.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"

namespace longhaul {

// `unix_seconds` on the steady clock, as clocks stand now. None where there is no end.
std::optional<Deadline> end_of_job(std::optional<std::int64_t> unix_seconds);
// " (the job's time is over: ...)" in its last minute and after it, for a run that stopped; else
// nothing.
std::string if_time_is_over(std::optional<std::int64_t> unix_seconds);

class TimeLimit {
 public:
  // The last minute, or a tenth of the time that there is, is for saving and leaving.
  TimeLimit(Deadline now, Deadline end);

  // Time to stop.
  bool is_over(Deadline now) const { return now >= stop_; }
  // Whether work of so many seconds is done before that. Predictions are off by a tenth.
  bool allows(Deadline now, double seconds) const;

 private:
  Deadline stop_;
};

}  // namespace longhaul
