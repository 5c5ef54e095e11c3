#include "kernels/swiglu.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const SwigluArgs& args) {
  require_equal("swiglu", "n_tokens of up", args.up.dim(0), args.gate.dim(0));
  require_equal("swiglu", "d_ff of up", args.up.dim(1), args.gate.dim(1));
  require_equal("swiglu", "n_tokens of out", args.out.dim(0), args.gate.dim(0));
  require_equal("swiglu", "d_ff of out", args.out.dim(1), args.gate.dim(1));
}

}  // namespace

void swiglu(StreamRef stream, const SwigluArgs& args) {
  check(args);
  run_on(stream, cpu::swiglu, cuda::swiglu, args);
}

}  // namespace longhaul
