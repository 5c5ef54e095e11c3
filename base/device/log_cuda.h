// What CUDA calls return, said where nobody can throw. Apart from check_cuda.h, for nvcc cannot
// read the log's checks of its formats.
#pragma once
#include <cuda_runtime.h>

#include "base/log.h"

namespace longhaul::cuda {

// For destructors: a failure here follows one that was thrown already.
inline void log_failure(cudaError_t result, const char* what) {
  if (result != cudaSuccess) {
    LONGHAUL_LOG(kWarning, kStep, "{}: {}", what, cudaGetErrorString(result));
  }
}

}  // namespace longhaul::cuda
