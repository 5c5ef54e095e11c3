// The probes of the device that a rank or a benchmark runs on.
#pragma once
#include <functional>

#include "base/device/device_memory.h"
#include "base/rates.h"
#include "base/work_clock.h"
#include "kernels/probes/cpu_probes.h"

namespace longhaul {

struct DeviceProbeArgs {
  DeviceId device = {};
  WorkClock clock = WorkClock::kWall;                   // of a CPU; a GPU counts its own time
  std::int64_t cpu_read_bytes = CpuProbes::kReadBytes;  // of memory; a GPU takes its own amount
  bool operator==(const DeviceProbeArgs&) const = default;
};
// What measures it: cpu_probes.h for the CPU, gpu_probes.h for a GPU, which the calling thread then
// uses. Blocks until the memory that they read is there.
std::function<Rates()> make_probes(const DeviceProbeArgs& args);

}  // namespace longhaul
