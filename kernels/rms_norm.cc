#include "kernels/rms_norm.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const RmsNormArgs& args) {
  require_equal("rms_norm", "n_rows of out", args.out.dim(0), args.x.dim(0));
  require_equal("rms_norm", "width of out", args.out.dim(1), args.x.dim(1));
  require_equal("rms_norm", "size of weight", static_cast<std::int64_t>(args.weight.size()),
                args.x.dim(1));
  require(args.eps >= 0.0F, [&] { return fmt::format("rms_norm: eps is {}", args.eps); });
}

}  // namespace

void rms_norm(StreamRef stream, const RmsNormArgs& args) {
  check(args);
  run_on(stream, cpu::rms_norm, cuda::rms_norm, args);
}

}  // namespace longhaul
