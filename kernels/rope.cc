#include "kernels/rope.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cuda/operators.h"
#include "kernels/parallel.h"
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
  require(2 * args.cos.dim(1) <= args.x.dim(2),
          fmt::format("rope: rotary_dim {} is more than head_dim {}", 2 * args.cos.dim(1),
                      args.x.dim(2)));
}

void rope_angles_cpu(const RopeAnglesArgs& args) {
  const auto half = static_cast<std::int64_t>(args.inverse_frequencies.size());
  constexpr std::int64_t kCostOfAngle = 16;  // a sine and a cosine, in elements of other operators
  parallel_rows(args.cos.dim(0), half * kCostOfAngle, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      const auto position = static_cast<double>(args.positions[static_cast<std::size_t>(token)]);
      const auto cos = args.cos[token];
      const auto sin = args.sin[token];
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = position * args.inverse_frequencies[static_cast<std::size_t>(i)];
        cos[i] = static_cast<float>(std::cos(angle) * args.attention_scale);
        sin[i] = static_cast<float>(std::sin(angle) * args.attention_scale);
      }
    }
  });
}

void rope_cpu(const RopeArgs& args) {
  const std::int64_t n_heads = args.x.dim(1);
  parallel_rows(args.x.dim(0), n_heads * args.x.dim(2), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      cpu::kernels().rope({.x = args.x[token].data(),
                           .head_stride = args.x.stride(1),
                           .cos = args.cos[token].data(),
                           .sin = args.sin[token].data(),
                           .n_heads = n_heads,
                           .half = args.cos.dim(1)});
    }
  });
}

}  // namespace

void rope_angles(StreamRef stream, const RopeAnglesArgs& args) {
  check(args);
  switch (stream.device()) {
    case Device::kCpu:
      return rope_angles_cpu(args);
    case Device::kCuda:
      return cuda::rope_angles(stream.cuda_stream(), args);
  }
}

void rope(StreamRef stream, const RopeArgs& args) {
  check(args);
  switch (stream.device()) {
    case Device::kCpu:
      return rope_cpu(args);
    case Device::kCuda:
      return cuda::rope(stream.cuda_stream(), args);
  }
}

}  // namespace longhaul
