// Checks of what CUDA calls return. For files that may include CUDA's headers only.
#pragma once
#include <cuda_runtime.h>

#include <source_location>
#include <string>
#include <string_view>

#include "base/error.h"

namespace longhaul::cuda {

// Throws kCuda: "<what>: <name of the error>: <its text>".
inline void check_cuda(cudaError_t result, std::string_view what,
                       std::source_location where = std::source_location::current()) {
  if (result != cudaSuccess) [[unlikely]] {
    throw Error(
        ErrorCode::kCuda,
        std::string(what) + ": " + cudaGetErrorName(result) + ": " + cudaGetErrorString(result),
        where);
  }
}

}  // namespace longhaul::cuda
