#include "kernels/highest_weights.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {

void highest_weights(StreamRef stream, const HighestWeightsArgs& args) {
  constexpr const char* kOp = "highest_weights";
  require_equal(kOp, "n_rows of m", args.m.dim(0), args.scores.dim(0));
  require_equal(kOp, "n_rows of l", args.l.dim(0), args.scores.dim(0));
  require(args.highest.dim(0) <= args.scores.dim(1), "highest_weights: more keys than scores");
  run_on(stream, cpu::highest_weights, cuda::highest_weights, args);
}

}  // namespace longhaul
