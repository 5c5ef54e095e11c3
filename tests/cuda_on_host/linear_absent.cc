// The operators that need a library of CUDA's cannot run here.
#include "base/error.h"
#include "kernels/cuda/operators.h"

namespace longhaul::cuda {

void linear(Stream& stream, const LinearArgs& args) {
  if (args.weight.dtype == DType::kI8) return int8_linear(stream, args);
  throw Error(ErrorCode::kUnsupported, "cuda_on_host: linear is cuBLASLt's");
}

}  // namespace longhaul::cuda
