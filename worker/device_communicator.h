// Ranks that exchange what lies in the memory of their devices.
#pragma once
#include <memory>

#include "base/device/device.h"
#include "cluster/comm/communicator.h"

namespace longhaul {

// Stands before `host`, which outlives it, as cluster/comm/gpu_communicator.h says, and sums with
// the kernel of that name; null where `host` will do. Collective over host where `uses_nccl`: then
// all ranks say so.
std::unique_ptr<Communicator> communicator_of_device(Communicator& host, StreamRef stream,
                                                     bool uses_nccl);

}  // namespace longhaul
