// GPU memory filled with random numbers for kernels to work on: on zeros a GPU draws less power and
// runs faster.
#pragma once
#include <cstdint>

#include "base/device/device_cuda.h"
#include "base/dtype.h"

namespace longhaul {

// n values with mean 0 and deviation 1, of type kF32 or kBf16, the same 8 million over and over:
// more would take a host long.
void fill_random(cuda::Stream& stream, std::byte* to, DType dtype, std::int64_t n);

}  // namespace longhaul
