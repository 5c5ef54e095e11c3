#include "kernels/backward/rows_backward.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void require_same_shape(const char* op, const char* what, const TensorView<const float, 2>& got,
                        const TensorView<const float, 2>& want) {
  for (int i = 0; i < 2; ++i) require_equal(op, what, got.dim(i), want.dim(i));
}

}  // namespace

void rms_norm_backward(StreamRef stream, const RmsNormBackwardArgs& args) {
  require_same_shape("rms_norm_backward", "shape of d_out", args.d_out, args.x);
  require_same_shape("rms_norm_backward", "shape of d_x", args.d_x, args.x);
  require_equal("rms_norm_backward", "width of weight",
                static_cast<std::int64_t>(args.weight.size()), args.x.dim(1));
  run_on(stream, cpu::rms_norm_backward, cuda::rms_norm_backward, args);
}

void swiglu_backward(StreamRef stream, const SwigluBackwardArgs& args) {
  require_same_shape("swiglu_backward", "shape of up", args.up, args.gate);
  require_same_shape("swiglu_backward", "shape of d_out", args.d_out, args.gate);
  require_same_shape("swiglu_backward", "shape of d_gate", args.d_gate, args.gate);
  require_same_shape("swiglu_backward", "shape of d_up", args.d_up, args.gate);
  run_on(stream, cpu::swiglu_backward, cuda::swiglu_backward, args);
}

}  // namespace longhaul
