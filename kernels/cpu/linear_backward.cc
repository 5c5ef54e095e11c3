// linear_backward on CPUs: the turned weights, multiplied by linear.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

constexpr std::int64_t kTurnTile =
    64;  // rows and columns that are turned together: fits a first cache

void turn(const WeightView& weight, Extent outputs, Extent inputs, std::byte* to) {
  const std::int64_t at = inputs.begin * weight.n_out + outputs.begin;
  if (weight.dtype == DType::kF32) {
    kernels().transpose_floats({.from = static_cast<const float*>(weight.data) +
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
  const std::int64_t n_bands = ceil_div(weight.n_in, kTurnTile);
  parallel_for(n_bands, [&](std::int64_t band) {
    const Extent inputs{band * kTurnTile, std::min(weight.n_in, (band + 1) * kTurnTile)};
    for (std::int64_t out = 0; out < weight.n_out; out += kTurnTile)
      turn(weight, {out, std::min(weight.n_out, out + kTurnTile)}, inputs, to);
  });
  return {.data = to, .dtype = weight.dtype, .n_out = weight.n_in, .n_in = weight.n_out};
}

}  // namespace

void linear_backward(const LinearBackwardArgs& args) {
  if (args.d_out.dim(0) == 0) return;
  thread_local Scratch scratch;
  linear({.x = args.d_out,
          .weight = turned(args.weight, scratch),
          .out = args.d_x,
          .output = args.output});
}

}  // namespace longhaul::cpu
