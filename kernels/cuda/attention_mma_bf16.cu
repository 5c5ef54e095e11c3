// Tensor-core attention over caches of bf16, for the usual head sizes.
#include "kernels/cuda/attention_mma.cuh"

namespace longhaul::cuda {

void attention_mma_bf16(Stream& stream, AttentionPath path, const AttentionWork& work) {
  switch (work.head_dim) {
    case 64:
      return launch_mma<KvType::kBf16, 64>(stream, path, work);
    case 80:
      return launch_mma<KvType::kBf16, 80>(stream, path, work);
    case 96:
      return launch_mma<KvType::kBf16, 96>(stream, path, work);
    case 128:
      return launch_mma<KvType::kBf16, 128>(stream, path, work);
    case 256:
      return launch_mma<KvType::kBf16, 256>(stream, path, work);
    default:
      throw Error(ErrorCode::kInternal, "attention: no bf16 kernel for this head_dim");
  }
}

// The one table of what is instantiated, here and in attention_mma_int8.cu, _int4.cu, _fp8.cu
// and _kivi.cu.
bool has_mma_kernel(const KvBlockShape& shape, std::size_t shared_bytes) {
  // Most chips of capability 8.x give a thread block less than the widest heads take.
  using Widest = Config<KvType::kBf16, 256, AttentionPath::kDecode>;
  if (shape.k_type != shape.v_type) return false;
  switch (shape.k_type) {
    case KvType::kF32:
      return false;
    case KvType::kBf16:
      return shape.head_dim == 64 || shape.head_dim == 80 || shape.head_dim == 96 ||
             shape.head_dim == 128 ||
             (shape.head_dim == 256 && shared_bytes >= std::size_t{4} * Widest::kWords);
    case KvType::kInt8:
    case KvType::kInt4:
    case KvType::kFp8:
    case KvType::kKivi4:
    case KvType::kKivi2:
      return shape.head_dim == 64 || shape.head_dim == 128;
  }
  return false;
}

bool has_wide_decode(const KvBlockShape& shape, std::size_t shared_bytes) {
  return is_wide_head_dim(shape.head_dim) && has_mma_kernel(shape, shared_bytes);
}

}  // namespace longhaul::cuda
