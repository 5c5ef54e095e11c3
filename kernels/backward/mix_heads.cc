#include "kernels/backward/mix_heads.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void require_same_heads(const char* op, const char* what, const TensorView<const float, 3>& got,
                        const TensorView<const float, 3>& want) {
  for (int i = 0; i < 3; ++i) require_equal(op, what, got.dim(i), want.dim(i));
  require(got.is_contiguous(), "mix_heads, gate_gradients: tensors must be contiguous");
}

}  // namespace

void mix_heads(StreamRef stream, const MixHeadsArgs& args) {
  constexpr const char* kOp = "mix_heads";
  require_same_heads(kOp, "shape of own", args.own, args.out);
  if (args.other.data() != nullptr) require_same_heads(kOp, "shape of other", args.other, args.out);
  require(!args.gates.empty(), "mix_heads: a gate for each KV head is needed");
  require_equal(kOp, "heads beyond whole groups",
                args.out.dim(1) % static_cast<std::int64_t>(args.gates.size()), 0);
  run_on(stream, cpu::mix_heads, cuda::mix_heads, args);
}

void gate_gradients(StreamRef stream, const GateGradientArgs& args) {
  constexpr const char* kOp = "gate_gradients";
  require_same_heads(kOp, "shape of other", args.other, args.d_mixed);
  require_same_heads(kOp, "shape of own", args.own, args.d_mixed);
  require_equal(kOp, "n_rows of out", args.out.dim(0), args.d_mixed.dim(0));
  require(args.out.dim(1) > 0 && args.out.is_contiguous(), "gate_gradients: out has no KV heads");
  require_equal(kOp, "heads beyond whole groups", args.d_mixed.dim(1) % args.out.dim(1), 0);
  run_on(stream, cpu::gate_gradients, cuda::gate_gradients, args);
}

}  // namespace longhaul
