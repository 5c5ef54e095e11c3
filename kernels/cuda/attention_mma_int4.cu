// Tensor-core attention over caches of int4.
#include "kernels/cuda/attention_mma.cuh"

namespace longhaul::cuda {

void attention_mma_int4(Stream& stream, AttentionPath path, const AttentionWork& work) {
  switch (work.head_dim) {
    case 64:
      return launch_mma<KvType::kInt4, 64>(stream, path, work);
    case 128:
      return launch_mma<KvType::kInt4, 128>(stream, path, work);
    default:
      throw Error(ErrorCode::kInternal, "attention: no int4 kernel for this head_dim");
  }
}

}  // namespace longhaul::cuda
