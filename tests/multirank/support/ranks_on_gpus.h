// Ranks as threads whose communicators take GPU memory. LONGHAUL_TEST_SPANS=device gives test
// bodies a communicator that puts every span into GPU memory first; otherwise they get the GPU
// communicator itself.
#pragma once
#include "base/device/device_cuda.h"

namespace longhaul::test {

// The compute stream of the calling rank, inside a test body.
cuda::Stream& stream_of_this_rank();

}  // namespace longhaul::test
