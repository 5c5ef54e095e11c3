#include "kernels/begin_attention.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check_heads(const BeginAttentionArgs& args, Device device, const TensorView<float, 3>& x,
                 std::span<const float> norm) {
  if (x.size() == 0) return;
  require_equal("begin_attention", "n_tokens of cos", args.cos.dim(0), x.dim(0));
  require_equal("begin_attention", "n_tokens of sin", args.sin.dim(0), x.dim(0));
  require_equal("begin_attention", "rotary_dim / 2 of sin", args.sin.dim(1), args.cos.dim(1));
  require_equal("begin_attention", "head_dim", x.dim(2), args.append.shape.head_dim);
  require(2 * args.cos.dim(1) <= x.dim(2), [&] {
    return fmt::format("begin_attention: rotary_dim {} is more than head_dim {}",
                       2 * args.cos.dim(1), x.dim(2));
  });
  if (!norm.empty()) {
    require_equal("begin_attention", "size of a norm", static_cast<std::int64_t>(norm.size()),
                  x.dim(2));
  }
  require(device != Device::kCpu || x.is_contiguous(),
          "begin_attention: q and k must be contiguous on CPUs");
}

void check(Device device, const BeginAttentionArgs& args) {
  check_heads(args, device, args.q, args.q_norm);
  check_heads(args, device, args.k, args.k_norm);
  if (args.q.size() > 0) {
    require(args.q.shape() == args.state.o.shape(), "begin_attention: q and o differ in shape");
  }
  for (const KvAppendItem& item : args.append.items) {
    const std::int64_t at = item.k.data() - args.k.data();
    require(args.k.size() > 0 && at >= 0 && item.k.stride(0) == args.k.stride(0) &&
                at / args.k.stride(0) + item.k.dim(0) <= args.k.dim(0),
            "begin_attention: an item's keys are no rows of k");
  }
  check_kv_append(device, args.append);
}

}  // namespace

void begin_attention(StreamRef stream, const BeginAttentionArgs& args) {
  check(stream.device(), args);
  run_on(stream, cpu::begin_attention, cuda::begin_attention, args);
}

}  // namespace longhaul
