#include "kernels/softmax_state.h"

#include <string_view>

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(std::string_view op, const SoftmaxStateView& state) {
  require_equal(op, "n_tokens of m", state.m.dim(0), state.o.dim(0));
  require_equal(op, "n_tokens of l", state.l.dim(0), state.o.dim(0));
  require_equal(op, "n_heads of m", state.m.dim(1), state.o.dim(1));
  require_equal(op, "n_heads of l", state.l.dim(1), state.o.dim(1));
}

void check_same_shape(std::string_view op, const TensorView<const float, 3>& a,
                      const TensorView<const float, 3>& b) {
  constexpr std::string_view kNames[] = {"n_tokens", "n_heads", "head_dim"};
  for (int i = 0; i < 3; ++i) require_equal(op, kNames[i], a.dim(i), b.dim(i));
}

}  // namespace

void clear(StreamRef stream, const SoftmaxStateView& state) {
  check("clear", state);
  run_on(stream, cpu::clear, cuda::clear, state);
}

void merge(StreamRef stream, const SoftmaxStateView& into, const SoftmaxStateView& from) {
  check("merge", into);
  check("merge", from);
  check_same_shape("merge", from.o, into.o);
  run_on(stream, cpu::merge, cuda::merge, into, from);
}

void merge_scales(StreamRef stream, const MergeScalesArgs& args) {
  check("merge_scales", args.state);
  for (const auto* scales : {&args.m, &args.l}) {
    require_equal("merge_scales", "n_tokens of the parts", scales->dim(1), args.state.m.dim(0));
    require_equal("merge_scales", "n_heads of the parts", scales->dim(2), args.state.m.dim(1));
  }
  require_equal("merge_scales", "parts of l", args.l.dim(0), args.m.dim(0));
  for (const int i : {0, 1, 2})
    require_equal("merge_scales", "a stride of l", args.l.stride(i), args.m.stride(i));
  run_on(stream, cpu::merge_scales, cuda::merge_scales, args);
}

void finish_attention(StreamRef stream, const FinishAttentionArgs& args) {
  check("finish_attention", args.state);
  check_same_shape("finish_attention", args.out, args.state.o);
  if (!args.sink_logits.empty()) {
    require_equal("finish_attention", "size of sink_logits",
                  static_cast<std::int64_t>(args.sink_logits.size()), args.state.o.dim(1));
  }
  run_on(stream, cpu::finish_attention, cuda::finish_attention, args);
}

}  // namespace longhaul
