// Reads memory of a GPU and does nothing else: how fast it can be read at best, for benchmarks.
#pragma once
#include <cstddef>

#include "base/device.h"

namespace longhaul::cuda {

// Queues the reading of `bytes` (a multiple of 16) from `from`; `unused` is room for 4 bytes.
void read_all(CudaStream& stream, const std::byte* from, std::size_t bytes, std::byte* unused);

}  // namespace longhaul::cuda
