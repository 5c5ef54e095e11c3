#include "kernels/residual_add.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
void residual_add(StreamRef stream, const ResidualAddArgs& args) {
  require(args.parts.dim(0) >= 1, "residual_add: there are no parts");
  require_equal("residual_add", "n_rows of parts", args.parts.dim(1), args.hidden.dim(0));
  require_equal("residual_add", "n of parts", args.parts.dim(2), args.hidden.dim(1));
  if (!args.bias.empty()) {
    require_equal("residual_add", "n of bias", static_cast<std::int64_t>(args.bias.size()),
                  args.hidden.dim(1));
  }
  run_on(stream, cpu::residual_add, cuda::residual_add, args);
}

}  // namespace longhaul
