// Prefill attention on Hopper's tensor cores: the host's part that attention.cu needs.
#pragma once
#include "kernels/attention.h"
#include "kernels/device_cuda.h"

namespace longhaul::cuda {

// Whether there is a kernel for such blocks in this build and on this GPU.
bool has_hopper_kernel(const KvBlockShape& shape, const DeviceInfo& device);
// attention() for such items of any number of rows.
void attention_hopper(Stream& stream, const AttentionArgs& args);

}  // namespace longhaul::cuda
