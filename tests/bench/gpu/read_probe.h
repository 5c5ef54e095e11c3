// How fast a GPU reads its memory: a kernel that does nothing else. In a build without CUDA it does
// nothing at all.
#pragma once
#include <cstddef>

#include "kernels/device_cuda.h"

namespace longhaul::bench {

// Queues the reading of `bytes` (a multiple of 16) from `from`; `unused` is room for 4 bytes.
void read_all(cuda::Stream& stream, const std::byte* from, std::size_t bytes, std::byte* unused);

}  // namespace longhaul::bench
