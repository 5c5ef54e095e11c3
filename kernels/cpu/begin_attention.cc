// begin_attention on CPUs: the operators that it stands for, one after the other.
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

void turn(const BeginAttentionArgs& args, const TensorView<float, 3>& x,
          std::span<const float> norm) {
  if (x.size() == 0) return;
  if (!norm.empty()) {
    const TensorView<float, 2> heads(x.data(), {x.dim(0) * x.dim(1), x.dim(2)});
    rms_norm({.x = heads, .weight = norm, .eps = args.norm_eps, .out = heads});
  }
  rope({.x = x, .cos = args.cos, .sin = args.sin});
}

}  // namespace

void begin_attention(const BeginAttentionArgs& args) {
  turn(args, args.k, args.k_norm);
  kv_append(args.append);
  turn(args, args.q, args.q_norm);
  if (args.q.size() > 0) clear(args.state);
}

}  // namespace longhaul::cpu
