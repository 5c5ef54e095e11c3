// The probes of the device that a benchmark runs on.
#pragma once
#include <functional>

#include "kernels/device_memory.h"
#include "tools/bench/bench_clock.h"
#include "tools/bench/bound.h"

namespace longhaul::bench {

// What measures it: probes.h for the CPU, gpu_probes.h for a GPU, which the calling thread then
// uses. Blocks until the memory that they read is there.
std::function<Rates()> make_probes(const DeviceId& device, BenchClock clock);

}  // namespace longhaul::bench
