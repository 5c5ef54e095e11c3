// Weights on a GPU: the same bytes in its memory, for every type of weight, as operators take them.
#pragma once
#include <span>
#include <vector>

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

// Whole matrices of floats of one type with the same number of inputs: one behind the other, so
// that they can be multiplied at once (kernels/project.h).
struct UploadedWeights {
  cuda::Buffer memory;
  std::vector<WeightView> views;
};
UploadedWeights upload_weights(cuda::Stream& stream, std::span<const WeightView> host);

}  // namespace longhaul
