// Adds up rows, the same bits on every device: the last step of a sum over ranks whose values are
// on GPUs (SumRows of cluster/comm/gpu_communicator.h). Local.
#pragma once
#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

// sum[i] = ((rows[0][i] + rows[1][i]) + rows[2][i]) + ...
struct SumRowsArgs {
  TensorView<const float, 2> rows;  // [n_rows, n], contiguous; at least one
  TensorView<float, 1> sum;         // [n], contiguous; does not overlap rows
};

void sum_rows(StreamRef stream, const SumRowsArgs& args);

}  // namespace longhaul
