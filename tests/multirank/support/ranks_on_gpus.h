// Ranks as threads whose communicators take GPU memory. LONGHAUL_TEST_SPANS=device gives test
// bodies a communicator that puts every span into GPU memory first; otherwise they get the GPU
// communicator itself. LONGHAUL_TEST_TRANSFERS=copy_engines: beside NCCL, where that is tested.
#pragma once
#include "base/device/device_cuda.h"
#include "cluster/comm/gpu_communicator.h"

namespace longhaul::test {

// The compute stream of the calling rank, inside a test body.
cuda::Stream& stream_of_this_rank();

// What this test's communicators are made with.
GpuCommunicatorConfig gpu_communicator_config(cuda::Stream& stream);

}  // namespace longhaul::test
