// Which time benchmarks count: what passes, or what is spent on a CPU. The latter is the better one
// on a busy machine, and makes no sense with more than one thread at work.
#pragma once
#include <cstdint>
#include <string_view>

namespace longhaul {

enum class WorkClock : std::uint8_t {
  kWall,
  kThreadCpu,   // of the calling thread
  kProcessCpu,  // of all threads of the process
};

std::string_view name_of(WorkClock clock);  // "wall", "cpu"
double now_seconds(WorkClock clock);        // from any start; differences count

}  // namespace longhaul
