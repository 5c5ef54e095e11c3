#include "kernels/backward/attention_backward.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

template <typename T, int kRank>
void require_contiguous(const TensorView<T, kRank>& x) {
  require(x.is_contiguous(), "attention_backward: tensors must be contiguous");
}

void check(const AttentionBackwardArgs& args) {
  constexpr const char* kOp = "attention_backward";
  const auto same = [&](const char* what, const TensorView<const float, 3>& got,
                        const TensorView<const float, 3>& want) {
    for (int i = 0; i < 3; ++i) require_equal(kOp, what, got.dim(i), want.dim(i));
    require_contiguous(got);
  };
  require_contiguous(args.q);
  require_contiguous(args.k);
  same("shape of d_o", args.d_o, args.q);
  same("shape of o", args.o, args.q);
  same("shape of d_q", args.d_q, args.q);
  same("shape of v", args.v, args.k);
  same("shape of d_k", args.d_k, args.k);
  same("shape of d_v", args.d_v, args.k);
  require_equal(kOp, "head_dim of k", args.k.dim(2), args.q.dim(2));
  require_equal(kOp, "heads beyond whole groups", args.q.dim(1) % args.k.dim(1), 0);
  require_equal(kOp, "positions of q", static_cast<std::int64_t>(args.q_positions.size()),
                args.q.dim(0));
  require_equal(kOp, "positions of k", static_cast<std::int64_t>(args.k_positions.size()),
                args.k.dim(0));
  require(args.sink_logits.empty() ||
              static_cast<std::int64_t>(args.sink_logits.size()) == args.q.dim(1),
          "attention_backward: a sink logit for each head, or none");
}

}  // namespace

void attention_backward(StreamRef stream, const AttentionBackwardArgs& args) {
  check(args);
  run_on(stream, cpu::attention_backward, cuda::attention_backward, args);
}

}  // namespace longhaul
