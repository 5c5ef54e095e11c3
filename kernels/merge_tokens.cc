#include "kernels/merge_tokens.h"

#include <algorithm>

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const MergeTokensArgs& args, const MergeTokensItem& item) {
  for (int i = 0; i < 3; ++i)
    require_equal("merge_tokens", "a dimension of v", item.v.dim(i), item.k.dim(i));
  for (int i = 1; i < 3; ++i)
    require_equal("merge_tokens", "a dimension of k", item.k.dim(i), args.items.front().k.dim(i));
  require_equal("merge_tokens", "rows of weights", item.weights.dim(0), item.k.dim(0));
  require_equal("merge_tokens", "heads of weights", item.weights.dim(1), item.k.dim(1));
  const std::int64_t n_before = item.before.n();
  require(n_before <= item.first_position, "merge_tokens: more tokens before than there are");
  require(n_before >= std::min(item.first_position, args.window - 1),
          "merge_tokens: tokens before the new ones are missing");
  if (n_before == 0) return;
  require_equal("merge_tokens", "heads before", item.before.k.dim(1), item.k.dim(1));
  require_equal("merge_tokens", "head_dim before", item.before.k.dim(2), item.k.dim(2));
}

}  // namespace

void merge_decisions(StreamRef stream, const MergeDecisionsArgs& args) {
  require_equal("merge_decisions", "positions", static_cast<std::int64_t>(args.positions.size()),
                args.k.dim(0));
  require_equal("merge_decisions", "decisions", static_cast<std::int64_t>(args.merges.size()),
                args.k.dim(0) * args.k.dim(1));
  run_on(stream, cpu::merge_decisions, cuda::merge_decisions, args);
}

void merge_weights(StreamRef stream, const MergeWeightsArgs& args) {
  require_equal("merge_weights", "rows of weights", args.weights.dim(0), args.q.dim(0));
  const std::int64_t n_kv_heads = args.weights.dim(1);
  const std::int64_t group = n_kv_heads == 0 ? 0 : args.q.dim(1) / n_kv_heads;
  require_equal("merge_weights", "query heads", group * n_kv_heads, args.q.dim(1));
  run_on(stream, cpu::merge_weights, cuda::merge_weights, args);
}

void merge_tokens(StreamRef stream, const MergeTokensArgs& args) {
  require(args.window >= 1, fmt::format("merge_tokens: a window of {} tokens", args.window));
  for (const MergeTokensItem& item : args.items) check(args, item);
  run_on(stream, cpu::merge_tokens, cuda::merge_tokens, args);
}

void zero_last_elements(StreamRef stream, const TensorView<float, 3>& x) {
  run_on(stream, cpu::zero_last_elements, cuda::zero_last_elements, x);
}

}  // namespace longhaul
