// Tensor-core attention over caches that quantise groups of tokens: kivi4 and kivi2.
#include "kernels/cuda/attention_mma.cuh"

namespace longhaul::cuda {
namespace {

template <KvType kType>
void launch_groups(Stream& stream, AttentionPath path, const AttentionWork& work) {
  switch (work.head_dim) {
    case 64:
      return launch_mma<kType, 64>(stream, path, work);
    case 128:
      return launch_mma<kType, 128>(stream, path, work);
    default:
      throw Error(ErrorCode::kInternal, "attention: no kernel of groups for this head_dim");
  }
}

}  // namespace

void attention_mma_kivi4(Stream& stream, AttentionPath path, const AttentionWork& work) {
  launch_groups<KvType::kKivi4>(stream, path, work);
}

void attention_mma_kivi2(Stream& stream, AttentionPath path, const AttentionWork& work) {
  launch_groups<KvType::kKivi2>(stream, path, work);
}

}  // namespace longhaul::cuda
