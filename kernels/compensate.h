// One key and value that stand for the tokens which a window has left behind: their means, weighted
// by their number (RazorAttention, Tang et al. 2024, arXiv 2407.15891, section 3.3). With N tokens
// gone, mean key k and mean value v, a query q adds
//   N exp(sm_scale q.k)      to the sum of exponentials
//   N exp(sm_scale q.k) v    to the sum of values.
// If all keys that are gone are equal this is attention to all of them. Each query has the means of
// what is gone for itself, so results do not depend on chunks. Sums are host memory on every
// device; on GPUs they go up and come down again, so the call waits for the stream's work. Local.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/device/device.h"
#include "kernels/kv_block.h"
#include "kernels/softmax_state.h"
#include "kernels/tensor.h"

namespace longhaul {

// Of the tokens [sink, sink + n) of a head.
struct GoneSums {
  std::vector<double> k = {};  // [head_dim]; empty: of none
  std::vector<double> v = {};
  std::int64_t n = 0;
};

// The new queries of one (sequence, KV head), whose tokens are in the cache.
struct CompensateItem {
  GoneSums* sums = nullptr;            // of what was gone for the query before; advanced
  std::span<const KvBlockRef> blocks;  // ascending; with all tokens that go now
  std::int64_t sink = 0;               // the window, which lets one token go for each query
  std::int64_t recent = 1;
  TensorView<const float, 3> q = {};               // [q_len, gqa_group, head_dim], after RoPE
  std::span<const std::int64_t> q_positions = {};  // [q_len], ascending
  SoftmaxStateView state = {};                     // [q_len, gqa_group(, head_dim)]; added to
  // Of the sequence's next token: in the end sums are of what is gone for that, too, whose blocks
  // may then be freed.
  std::int64_t next_position = 0;
};

struct CompensateArgs {
  KvBlockShape shape;
  float sm_scale = 1.0F;
  std::span<const CompensateItem> items;  // distinct sums and states; done in parallel
};

// Throws kInvalidArgument where a token that goes is not in the blocks.
void compensate(StreamRef stream, const CompensateArgs& args);

// Of the item's tokens behind the sink those that are gone for the query at this position.
constexpr std::int64_t n_gone(const CompensateItem& item, std::int64_t position) {
  return position - item.recent - item.sink + 1;
}
// When all of the item is done.
std::int64_t n_gone_in_the_end(const CompensateItem& item);

}  // namespace longhaul
