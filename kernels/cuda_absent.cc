#include "kernels/cuda_absent.h"

#include <fmt/format.h>
#include "base/error.h"

namespace longhaul {

void cuda_absent(std::string_view name) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("kernels: {} on CUDA is not in this build; run on the CPU", name));
}

}  // namespace longhaul
