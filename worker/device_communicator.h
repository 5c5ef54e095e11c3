// Ranks that exchange what lies in the memory of their devices.
#pragma once
#include <memory>

#include "base/device/device.h"
#include "cluster/comm/communicator.h"
#include "cluster/comm/gpu_transport.h"

namespace longhaul {

// Stands before `host`, which outlives it, as cluster/comm/gpu_transport.h says, and sums with
// the kernel of that name; null where `host` will do. Collective over host but for kStaged: all
// ranks say the same.
std::unique_ptr<Communicator> communicator_of_device(Communicator& host, StreamRef stream,
                                                     GpuTransport transport);

}  // namespace longhaul
