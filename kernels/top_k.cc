#include "kernels/top_k.h"

#include <limits>

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const TopKArgs& args) {
  const std::int64_t n_rows = args.logits.dim(0);
  require_equal("top_k", "n_rows of ids", args.ids.dim(0), n_rows);
  require_equal("top_k", "n_rows of values", args.values.dim(0), n_rows);
  require_equal("top_k", "k of values", args.values.dim(1), args.ids.dim(1));
  require(args.ids.dim(1) >= 1 && args.ids.dim(1) <= args.logits.dim(1),
          fmt::format("top_k: k is {}, must be in [1, {}]", args.ids.dim(1), args.logits.dim(1)));
  require(args.logits.dim(1) <= std::numeric_limits<std::int32_t>::max(),
          fmt::format("top_k: vocab_size {} does not fit into 32 bits", args.logits.dim(1)));
  if (!args.log_sum_exp.empty()) {
    require_equal("top_k", "size of log_sum_exp",
                  static_cast<std::int64_t>(args.log_sum_exp.size()), n_rows);
  }
}

}  // namespace

void top_k(StreamRef stream, const TopKArgs& args) {
  check(args);
  run_on(stream, cpu::top_k, cuda::top_k, args);
}

}  // namespace longhaul
