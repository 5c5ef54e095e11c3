// --device: what computes.
#pragma once
#include <string>

#include "kernels/device_memory.h"
#include "tools/cli_app.h"

namespace longhaul {

void add_device_flag(CLI::App& app, std::string& device, const std::string& group);

// "cpu", "cuda" or "auto" (a GPU where there is one) for rank number `local_rank` of its host: GPUs
// are dealt in turn. Throws kUnsupported, saying why, where "cuda" is asked for and there is none.
DeviceId chosen_device(const std::string& device, int local_rank = 0);

// "avx512 kernels" of the CPU, or "cuda:0, NVIDIA H200".
std::string describe(const DeviceId& device);

}  // namespace longhaul
