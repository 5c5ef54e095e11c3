#include "kernels/backward/linear_backward.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

constexpr std::int64_t kTile = 64;  // rows and columns that are turned together: fits a first cache

void check(const LinearBackwardArgs& args) {
  require_float_weight("linear_backward", args.weight);
  require_equal("linear_backward", "n_out of d_out", args.d_out.dim(1), args.weight.n_out);
  require_equal("linear_backward", "n_in of d_x", args.d_x.dim(1), args.weight.n_in);
  require_equal("linear_backward", "n_tokens of d_x", args.d_x.dim(0), args.d_out.dim(0));
  require(args.d_out.is_contiguous() && args.d_x.is_contiguous(),
          "linear_backward: d_out and d_x must be contiguous");
}

void turn(const WeightView& weight, Extent outputs, Extent inputs, std::byte* to) {
  const std::int64_t at = inputs.begin * weight.n_out + outputs.begin;
  if (weight.dtype == DType::kF32) {
    cpu::kernels().transpose_floats({.from = static_cast<const float*>(weight.data) +
                                             outputs.begin * weight.stride() + inputs.begin,
                                     .from_stride = weight.stride(),
                                     .n_rows = outputs.size(),
                                     .n_columns = inputs.size(),
                                     .to = reinterpret_cast<float*>(to) + at,
                                     .to_stride = weight.n_out});
    return;
  }
  const auto* from = static_cast<const std::uint16_t*>(weight.data);
  auto* halves = reinterpret_cast<std::uint16_t*>(to);
  for (std::int64_t in = inputs.begin; in < inputs.end; ++in) {
    for (std::int64_t out = outputs.begin; out < outputs.end; ++out) {
      std::memcpy(halves + in * weight.n_out + out, from + out * weight.stride() + in,
                  sizeof *halves);
    }
  }
}

// The same values as [n_in, n_out].
WeightView turned(const WeightView& weight, Scratch& scratch) {
  std::byte* to =
      scratch.bytes(static_cast<std::size_t>(weight.n_out * weight.n_in) * size_of(weight.dtype));
  const std::int64_t n_bands = ceil_div(weight.n_in, kTile);
  parallel_for(n_bands, [&](std::int64_t band) {
    const Extent inputs{band * kTile, std::min(weight.n_in, (band + 1) * kTile)};
    for (std::int64_t out = 0; out < weight.n_out; out += kTile)
      turn(weight, {out, std::min(weight.n_out, out + kTile)}, inputs, to);
  });
  return {.data = to, .dtype = weight.dtype, .n_out = weight.n_in, .n_in = weight.n_out};
}

}  // namespace

void linear_backward(const LinearBackwardArgs& args) {
  check(args);
  if (args.d_out.dim(0) == 0) return;
  thread_local Scratch scratch;
  linear(StreamRef::cpu(), {.x = args.d_out,
                            .weight = turned(args.weight, scratch),
                            .out = args.d_x,
                            .output = args.output});
}

}  // namespace longhaul
