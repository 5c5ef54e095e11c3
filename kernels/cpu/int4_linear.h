// linear() with int4 weights on the CPU. For linear.cc, which has checked the shapes.
#pragma once
#include "kernels/linear.h"

namespace longhaul {

void int4_linear(const LinearArgs& args);

}  // namespace longhaul
