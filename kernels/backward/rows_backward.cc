#include "kernels/backward/rows_backward.h"

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void require_same_shape(const char* op, const char* what, const TensorView<const float, 2>& got,
                        const TensorView<const float, 2>& want) {
  for (int i = 0; i < 2; ++i) require_equal(op, what, got.dim(i), want.dim(i));
}

}  // namespace

void rms_norm_backward(const RmsNormBackwardArgs& args) {
  require_same_shape("rms_norm_backward", "shape of d_out", args.d_out, args.x);
  require_same_shape("rms_norm_backward", "shape of d_x", args.d_x, args.x);
  require_equal("rms_norm_backward", "width of weight",
                static_cast<std::int64_t>(args.weight.size()), args.x.dim(1));
  const std::int64_t width = args.x.dim(1);
  parallel_rows(args.x.dim(0), width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      cpu::kernels().rms_norm_backward({.x = args.x[row].data(),
                                        .weight = args.weight.data(),
                                        .eps = args.eps,
                                        .d_out = args.d_out[row].data(),
                                        .d_x = args.d_x[row].data(),
                                        .width = width,
                                        .adds = args.adds});
    }
  });
}

void swiglu_backward(const SwigluBackwardArgs& args) {
  require_same_shape("swiglu_backward", "shape of up", args.up, args.gate);
  require_same_shape("swiglu_backward", "shape of d_out", args.d_out, args.gate);
  require_same_shape("swiglu_backward", "shape of d_gate", args.d_gate, args.gate);
  require_same_shape("swiglu_backward", "shape of d_up", args.d_up, args.gate);
  const std::int64_t width = args.gate.dim(1);
  parallel_rows(args.gate.dim(0), width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      cpu::kernels().swiglu_backward({.gate = args.gate[row].data(),
                                      .up = args.up[row].data(),
                                      .d_out = args.d_out[row].data(),
                                      .d_gate = args.d_gate[row].data(),
                                      .d_up = args.d_up[row].data(),
                                      .n = width});
    }
  });
}

}  // namespace longhaul
