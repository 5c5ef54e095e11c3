// linear() with bf16 weights by AMX. For linear.cc, which has checked the shapes and that the
// active instruction set has AMX.
#pragma once
#include "kernels/linear.h"

namespace longhaul {

// Reads the weights once, at the speed of memory, as they lie there.
void amx_few_rows_linear(const LinearArgs& args);
// Any number of rows.
void amx_tiled_linear(const LinearArgs& args);

}  // namespace longhaul
