#include "kernels/linear.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const LinearArgs& args) {
  const DType dtype = args.weight.dtype;
  if (!is_integer(dtype) && dtype != DType::kF8E4m3) require_float_weight("linear", args.weight);
  require_equal("linear", "n_in of x", args.x.dim(1), args.weight.n_in);
  require_equal("linear", "n_tokens of out", args.out.dim(0), args.x.dim(0));
  require_equal("linear", "n_out of out", args.out.dim(1), args.weight.n_out);
  if (!args.bias.empty()) {
    require_equal("linear", "size of bias", static_cast<std::int64_t>(args.bias.size()),
                  args.weight.n_out);
  }
  require(args.x.is_contiguous() && args.out.is_contiguous(),
          "linear: x and out must be contiguous");
}

}  // namespace

void linear(StreamRef stream, const LinearArgs& args) {
  check(args);
  run_on(stream, cpu::linear, cuda::linear, args);
}

}  // namespace longhaul
