// Matrix products by oneDNN. A build without oneDNN has onednn_absent.cc in its place.
#pragma once
#include "kernels/linear.h"

namespace longhaul::onednn {

bool in_build();
// Shapes are checked. Any thread; uses kernel_threads() threads.
void linear(const LinearArgs& args);

}  // namespace longhaul::onednn
