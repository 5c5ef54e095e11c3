#include "kernels/residual_add.h"

#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void residual_add_cpu(const ResidualAddArgs& args) {
  for (std::int64_t row = 0; row < args.hidden.dim(0); ++row) {
    float* h = args.hidden[row].data();
    const float* p = args.part[row].data();
    for (std::int64_t i = 0; i < args.hidden.dim(1); ++i) {
      h[i] += p[i] + (args.bias.empty() ? 0.0F : args.bias[static_cast<std::size_t>(i)]);
    }
  }
}

}  // namespace

void residual_add(StreamRef stream, const ResidualAddArgs& args) {
  require_equal("residual_add", "n_rows of part", args.part.dim(0), args.hidden.dim(0));
  require_equal("residual_add", "n of part", args.part.dim(1), args.hidden.dim(1));
  if (!args.bias.empty()) {
    require_equal("residual_add", "n of bias", static_cast<std::int64_t>(args.bias.size()),
                  args.hidden.dim(1));
  }
  switch (stream.device()) {
    case Device::kCpu:
      return residual_add_cpu(args);
    case Device::kCuda:
      return cuda::residual_add(stream.cuda_stream(), args);
  }
}

}  // namespace longhaul
