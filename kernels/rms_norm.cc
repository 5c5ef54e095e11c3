#include "kernels/rms_norm.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cuda/operators.h"
#include "kernels/parallel.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const RmsNormArgs& args) {
  require_equal("rms_norm", "n_rows of out", args.out.dim(0), args.x.dim(0));
  require_equal("rms_norm", "width of out", args.out.dim(1), args.x.dim(1));
  require_equal("rms_norm", "size of weight", static_cast<std::int64_t>(args.weight.size()),
                args.x.dim(1));
  require(args.eps >= 0.0F, fmt::format("rms_norm: eps is {}", args.eps));
}

void rms_norm_cpu(const RmsNormArgs& args) {
  parallel_rows(args.x.dim(0), args.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    cpu::kernels().rms_norm({.x = args.x.data() + begin * args.x.stride(0),
                             .x_stride = args.x.stride(0),
                             .weight = args.weight.data(),
                             .eps = args.eps,
                             .out = args.out.data() + begin * args.out.stride(0),
                             .out_stride = args.out.stride(0),
                             .n_rows = end - begin,
                             .width = args.x.dim(1)});
  });
}

}  // namespace

void rms_norm(StreamRef stream, const RmsNormArgs& args) {
  check(args);
  switch (stream.device()) {
    case Device::kCpu:
      return rms_norm_cpu(args);
    case Device::kCuda:
      return cuda::rms_norm(stream.cuda_stream(), args);
  }
}

}  // namespace longhaul
