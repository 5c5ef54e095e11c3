// The paths of linear() for weights of fp8. For operators only.
#pragma once
#include "kernels/linear.h"

namespace longhaul {

void few_rows_fp8_linear(const LinearArgs& args);
void tiled_fp8_linear(const LinearArgs& args);

}  // namespace longhaul
