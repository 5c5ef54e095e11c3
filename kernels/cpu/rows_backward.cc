// Gradients on CPUs that are taken row by row, cut for the threads of the rank.
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"

namespace longhaul::cpu {

void rms_norm_backward(const RmsNormBackwardArgs& args) {
  const std::int64_t width = args.x.dim(1);
  parallel_rows(args.x.dim(0), width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      kernels().rms_norm_backward({.x = args.x[row].data(),
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
  const std::int64_t width = args.gate.dim(1);
  parallel_rows(args.gate.dim(0), width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      kernels().swiglu_backward({.gate = args.gate[row].data(),
                                 .up = args.up[row].data(),
                                 .d_out = args.d_out[row].data(),
                                 .d_gate = args.d_gate[row].data(),
                                 .d_up = args.d_up[row].data(),
                                 .n = width});
    }
  });
}

void mix_heads(const MixHeadsArgs& args) {
  const auto n_kv_heads = static_cast<std::int64_t>(args.gates.size());
  const std::int64_t width = args.out.dim(1) / n_kv_heads * args.out.dim(2);
  parallel_rows(args.out.dim(0) * n_kv_heads, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float gate = args.gates[static_cast<std::size_t>(row % n_kv_heads)];
      const float* own = args.own.data() + row * width;
      const float* other = args.other.data() == nullptr ? nullptr : args.other.data() + row * width;
      float* out = args.out.data() + row * width;
      for (std::int64_t i = 0; i < width; ++i) {
        const float theirs = other == nullptr ? 0.0F : gate * other[i];
        out[i] = theirs + (1.0F - gate) * own[i];
      }
    }
  });
}

void gate_gradients(const GateGradientArgs& args) {
  const std::int64_t n_kv_heads = args.out.dim(1);
  const std::int64_t width = args.own.dim(1) / n_kv_heads * args.own.dim(2);
  parallel_rows(args.own.dim(0) * n_kv_heads, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* d = args.d_mixed.data() + row * width;
      const float* other = args.other.data() + row * width;
      const float* own = args.own.data() + row * width;
      float sum = 0;
      for (std::int64_t i = 0; i < width; ++i) sum += d[i] * (other[i] - own[i]);
      args.out.data()[row] = sum;
    }
  });
}

}  // namespace longhaul::cpu
