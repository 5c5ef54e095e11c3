// How fast this rank computes and reads, measured in about 0.2 s.
#pragma once
#include "base/dtype.h"

namespace longhaul {

struct MeasuredSpeed {
  double gflops = 0;
  double memory_gb_per_s = 0;
};

// With weights of this type (kF32, kBf16, kI8, kI4 or kF8E4m3), on GPU number `gpu`, or on CPUs
// (-1) with the threads that kernels have now. Takes the kernels of the calling thread for as long
// as it lasts.
MeasuredSpeed measure_speed(DType weight_dtype, int gpu);

}  // namespace longhaul
