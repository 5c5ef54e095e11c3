// linear() with int8 weights on the CPU. For linear.cc, which has checked the shapes.
#pragma once
#include "kernels/linear.h"

namespace longhaul {

void int8_linear(const LinearArgs& args);

}  // namespace longhaul
