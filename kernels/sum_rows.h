// Adds rows by rank on a GPU: the last step of a sum over ranks (SumRows of
// cluster/comm/gpu_communicator.h). On CPUs communicators add rows themselves.
#pragma once
#include <cstdint>

#include "kernels/device_cuda.h"

namespace longhaul::cuda {

// Queues sum[i] = ((rows[0][i] + rows[1][i]) + rows[2][i]) + ...: the bits of the host's sum.
// rows: [n_rows, n]; both are memory of the GPU and do not overlap.
void sum_rows(Stream& stream, float* sum, const float* rows, std::int64_t n_rows, std::int64_t n);

}  // namespace longhaul::cuda
