// An item of attention as its kernels read it.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/attention_work.h"

namespace longhaul::cuda {

// Masks may say "unlimited"; sums and differences with positions must not overflow.
inline constexpr std::int64_t kMostDistance = std::int64_t{1} << 62;

inline AttentionItemRef item_ref(const AttentionItem& item, std::int64_t positions_at) {
  return {.q = item.q.data(),
          .q_token_stride = item.q.stride(0),
          .q_head_stride = item.q.stride(1),
          .gqa_group = item.q.dim(1),
          .n_rows = item.q.dim(0) * item.q.dim(1),
          .positions_at = positions_at,
          .sink = std::min(item.mask.sink, kMostDistance),
          .recent = std::min(item.mask.recent, kMostDistance),
          .state = state_ref(item.state)};
}

}  // namespace longhaul::cuda
