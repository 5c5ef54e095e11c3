// The operators that need a library of CUDA's cannot run here.
#include "base/error.h"
#include "kernels/cuda/operators.h"

namespace longhaul::cuda {

void linear(Stream&, const LinearArgs&) {
  throw Error(ErrorCode::kUnsupported, "cuda_on_host: linear is cuBLASLt's");
}

}  // namespace longhaul::cuda
