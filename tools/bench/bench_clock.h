// Which time benchmarks count: what passes, or what the calling thread spends on a CPU. The latter
// is the better one on a busy machine, and makes no sense with more than one thread.
#pragma once
#include <string_view>

namespace longhaul::bench {

enum class BenchClock { kWall, kThreadCpu };

std::string_view name_of(BenchClock clock);  // "wall", "cpu"
double now_seconds(BenchClock clock);        // from any start; differences count

}  // namespace longhaul::bench
