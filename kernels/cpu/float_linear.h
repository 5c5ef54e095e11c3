// linear() with weights of f32 and bf16 on CPUs without AMX. For linear_paths.cc; shapes are
// checked.
#pragma once
#include "kernels/linear.h"

namespace longhaul {

// Few rows: reads the weights once, at the speed of memory, as they lie there.
void few_rows_linear(const LinearArgs& args);
// Any number of rows.
void tiled_linear(const LinearArgs& args);
// The same two for bf16 weights by VDPBF16PS, where the active instruction set has that.
void few_rows_of_pairs_linear(const LinearArgs& args);
void tiled_pairs_linear(const LinearArgs& args);

}  // namespace longhaul
