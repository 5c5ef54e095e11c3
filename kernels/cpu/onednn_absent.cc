// Stands in for onednn.cc in a build without oneDNN.
#include "base/error.h"
#include "kernels/cpu/onednn.h"

namespace longhaul::onednn {

bool in_build() { return false; }

void linear(const LinearArgs&) {
  throw Error(ErrorCode::kUnsupported, "kernels: oneDNN is not in this build");
}

}  // namespace longhaul::onednn
