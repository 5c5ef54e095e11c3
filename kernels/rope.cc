#include "kernels/rope.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const RopeAnglesArgs& args) {
  const auto n_tokens = static_cast<std::int64_t>(args.positions.size());
  const auto half = static_cast<std::int64_t>(args.inverse_frequencies.size());
  require_equal("rope_angles", "n_tokens of cos", args.cos.dim(0), n_tokens);
  require_equal("rope_angles", "n_tokens of sin", args.sin.dim(0), n_tokens);
  require_equal("rope_angles", "rotary_dim / 2 of cos", args.cos.dim(1), half);
  require_equal("rope_angles", "rotary_dim / 2 of sin", args.sin.dim(1), half);
}

void check(const RopeArgs& args) {
  require_equal("rope", "n_tokens of cos", args.cos.dim(0), args.x.dim(0));
  require_equal("rope", "n_tokens of sin", args.sin.dim(0), args.x.dim(0));
  require_equal("rope", "rotary_dim / 2 of sin", args.sin.dim(1), args.cos.dim(1));
  require(2 * args.cos.dim(1) <= args.x.dim(2), [&] {
    return fmt::format("rope: rotary_dim {} is more than head_dim {}", 2 * args.cos.dim(1),
                       args.x.dim(2));
  });
}

}  // namespace

void rope_angles(StreamRef stream, const RopeAnglesArgs& args) {
  check(args);
  run_on(stream, cpu::rope_angles, cuda::rope_angles, args);
}

void rope(StreamRef stream, const RopeArgs& args) {
  check(args);
  run_on(stream, cpu::rope, cuda::rope, args);
}

}  // namespace longhaul
