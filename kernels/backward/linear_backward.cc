#include "kernels/backward/linear_backward.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const LinearBackwardArgs& args) {
  require_float_weight("linear_backward", args.weight);
  require_equal("linear_backward", "n_out of d_out", args.d_out.dim(1), args.weight.n_out);
  require_equal("linear_backward", "n_in of d_x", args.d_x.dim(1), args.weight.n_in);
  require_equal("linear_backward", "n_tokens of d_x", args.d_x.dim(0), args.d_out.dim(0));
  require(args.d_out.is_contiguous() && args.d_x.is_contiguous(),
          "linear_backward: d_out and d_x must be contiguous");
}

}  // namespace

void linear_backward(StreamRef stream, const LinearBackwardArgs& args) {
  check(args);
  run_on(stream, cpu::linear_backward, cuda::linear_backward, args);
}

}  // namespace longhaul
