// Weights on a GPU: the same bytes in its memory, for every type of weight, as operators take them.
#pragma once
#include "base/device/device_cuda.h"
#include "kernels/tensor.h"

namespace longhaul {

// `view` is of `memory`, and may be cut like any other. Move-only.
struct UploadedWeight {
  cuda::Buffer memory;
  WeightView view;
};

// Copies a whole matrix in host memory: as a model file or Int8Matrix has it, not a part of one
// that begins within a row, a group or a panel. Blocks until it is there. Throws kOutOfMemory.
UploadedWeight upload_weight(cuda::Stream& stream, const WeightView& host);

}  // namespace longhaul
