// What computes: a user's choice becomes a device of this machine.
#pragma once
#include <cstdint>
#include <string>

#include "base/device/device_memory.h"

namespace longhaul {

enum class DeviceChoice : std::uint8_t {
  kCpu,
  kCuda,  // a GPU for each rank of a host, dealt in turn
  kAuto,  // GPUs where there are any
};

// For rank number `local_rank` of its host. Throws kUnsupported, saying why, where GPUs are asked
// for and there is none.
DeviceId chosen_device(DeviceChoice choice, int local_rank = 0);

// "avx512 kernels" of the CPU, or "cuda:0, NVIDIA H200".
std::string describe(const DeviceId& device);

}  // namespace longhaul
