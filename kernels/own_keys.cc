#include "kernels/own_keys.h"

#include "kernels/kv_block_check.h"
#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {

void add_own_keys(StreamRef stream, const OwnKeysArgs& args) {
  check_kv_block_shape("add_own_keys", args.shape);
  require_cpu_for_groups("add_own_keys", stream.device(), args.shape);
  const std::int64_t n_rows = args.q.dim(0);
  if (n_rows == 0) return;
  require_equal("add_own_keys", "rows of k", args.k.dim(0), n_rows);
  require_equal("add_own_keys", "rows of v", args.v.dim(0), n_rows);
  require_equal("add_own_keys", "rows of the state", args.state.o.dim(0), n_rows);
  require_equal("add_own_keys", "heads of the state", args.state.o.dim(1), args.q.dim(1));
  require_equal("add_own_keys", "head_dim of q", args.q.dim(2), args.shape.head_dim);
  require(args.k.dim(1) > 0 && args.q.dim(1) % args.k.dim(1) == 0,
          "add_own_keys: query heads are no multiple of KV heads");
  run_on(stream, cpu::add_own_keys, cuda::add_own_keys, args);
}

}  // namespace longhaul
