// Tensor-core attention over caches of fp8.
#include "kernels/cuda/attention_mma.cuh"

namespace longhaul::cuda {

void attention_mma_fp8(Stream& stream, AttentionPath path, const AttentionWork& work) {
  switch (work.head_dim) {
    case 64:
      return launch_mma<KvType::kFp8, 64>(stream, path, work);
    case 128:
      return launch_mma<KvType::kFp8, 128>(stream, path, work);
    default:
      throw Error(ErrorCode::kInternal, "attention: no fp8 kernel for this head_dim");
  }
}

}  // namespace longhaul::cuda
