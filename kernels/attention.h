// Attention of queries over paged KV blocks, giving partial states. The one attention operator:
// prefill and decode, retrieval and streaming heads, in a ring or alone differ only in what they
// pass. Local.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "base/device/device.h"
#include "kernels/block_table.h"
#include "kernels/kv_block.h"
#include "kernels/softmax_state.h"
#include "kernels/sum_order.h"
#include "kernels/tensor.h"

namespace longhaul {

// Positions are at most this, so that differences and sums of two never overflow.
inline constexpr std::int64_t kMostAttentionPosition = std::int64_t{1} << 61;

// Which keys a query sees: the key at position j is visible to the query at position p if and only
// if
//   j <= p  and  (j < sink  or  p - j < recent)
// so `recent` counts the query's own token. The default is plain causal attention.
struct AttentionMask {
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
  std::int64_t sink = 0;
  std::int64_t recent = kUnlimited;
  bool operator==(const AttentionMask&) const = default;
};

// The queries of one (sequence, KV head): all query heads of that KV head's group, against that
// head's blocks.
struct AttentionItem {
  TensorView<const float, 3>
      q;  // [q_len, gqa_group, head_dim], after RoPE; outer dimensions may be strided
  std::span<const std::int64_t> q_positions;  // [q_len], ascending
  std::span<const KvBlockRef>
      blocks;  // any order, any gaps; blocks that the mask hides cost nothing. Slots that are not
               // seen by all (KvBlockRef::seen_by): groups of kMostSeenByHeads at most
  // The same blocks by number, on GPUs, for few queries: then `blocks` are not looked at one by
  // one.
  std::optional<BlockTable> table = std::nullopt;
  AttentionMask mask = {};
  SoftmaxStateView
      state;  // [q_len, gqa_group(, head_dim)]; what the blocks add is merged in: clear() it first
};

struct AttentionArgs {
  KvBlockShape shape;
  float sm_scale = 1.0F;                 // usually 1 / sqrt(head_dim)
  std::span<const AttentionItem> items;  // distinct states; done in parallel, also along q_len and,
                                         // for few queries, along the keys
  // kOfManyRows: a query adds up its keys in the order of their positions, grouped by these alone;
  // few queries are not cut along the keys then. Blocks ascend and begin at multiples of 16.
  // kOfFewRows: each query as if it were alone, cut along the keys by how many it sees: for items
  // of one token this is what is fastest. GPUs have kFastest alone.
  SumOrder order = SumOrder::kFastest;
};

void attention(StreamRef stream, const AttentionArgs& args);

}  // namespace longhaul
