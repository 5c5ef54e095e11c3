#include "kernels/compensate.h"

#include <algorithm>

#include "kernels/kv_block_check.h"
#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {

std::int64_t n_gone_in_the_end(const CompensateItem& item) {
  std::int64_t n = std::max(item.sums->n, n_gone(item, item.next_position));
  if (!item.q_positions.empty()) n = std::max(n, n_gone(item, item.q_positions.back()));
  return n;
}

void compensate(StreamRef stream, const CompensateArgs& args) {
  check_kv_block_shape("compensate", args.shape);
  require_cpu_for_groups("compensate", stream.device(), args.shape);
  for (const CompensateItem& item : args.items) {
    require_equal("compensate", "positions of q",
                  static_cast<std::int64_t>(item.q_positions.size()), item.q.dim(0));
    if (item.q.dim(0) > 0)
      require_equal("compensate", "head_dim of q", item.q.dim(2), args.shape.head_dim);
  }
  run_on(stream, cpu::compensate, cuda::compensate, args);
}

}  // namespace longhaul
