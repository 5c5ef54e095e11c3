// What the attention kernels share.
#pragma once
#include "kernels/attention.h"
#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_words.cuh"
#include "kernels/cuda/softmax_state.cuh"

namespace longhaul::cuda {

// What all work on these blocks has in common; the rest is empty.
inline AttentionWork work_of(const AttentionArgs& args) {
  return {.block_size = args.shape.block_size,
          .head_dim = args.shape.head_dim,
          .k = k_part(args.shape),
          .v = v_part(args.shape),
          .sm_scale = args.sm_scale,
          .log2_scale = args.sm_scale * 1.4426950408889634F};
}

// The tasks of one path.
void attention_simt(Stream& stream, const AttentionWork& work);

// Whether there is a kernel on tensor cores for such blocks, on a chip whose thread blocks can have
// so much memory; and whether it has wide tiles for decode.
bool has_mma_kernel(const KvBlockShape& shape, std::size_t shared_bytes);
bool has_wide_decode(const KvBlockShape& shape, std::size_t shared_bytes);
void attention_mma_bf16(Stream& stream, AttentionPath path, const AttentionWork& work);
void attention_mma_int8(Stream& stream, AttentionPath path, const AttentionWork& work);
void attention_mma_int4(Stream& stream, AttentionPath path, const AttentionWork& work);
void attention_mma_fp8(Stream& stream, AttentionPath path, const AttentionWork& work);
void attention_mma_kivi4(Stream& stream, AttentionPath path, const AttentionWork& work);
void attention_mma_kivi2(Stream& stream, AttentionPath path, const AttentionWork& work);

// Where a row of a tile comes from.
struct RowPlace {
  const AttentionItemRef& item;
  std::int64_t partial_at;
  std::int64_t row;  // of the member's partial state
  std::int64_t token;
  std::int64_t head;
};
__device__ __forceinline__ RowPlace row_place(const AttentionWork& work, const AttentionTask& task,
                                              int row) {
  const AttentionMember& member = work.members[task.first_member + row / task.member_rows];
  const AttentionItemRef& item = work.items[member.item];
  const std::int32_t within = row % task.member_rows;
  const std::int64_t at = task.first_row + within;
  const std::int64_t partial_at =
      member.partial_at < 0 ? member.partial_at : member.partial_at + task.partial_offset;
  return {item, partial_at, within, at / item.gqa_group, at % item.gqa_group};
}

}  // namespace longhaul::cuda
