// What a processor and its memory attain at best, a second: the yardstick of benchmarks. Measured
// by kernels/probes.
#pragma once
#include "base/dtype.h"

namespace longhaul {

struct Rates {
  double float_flops = 0;  // multiply-adds of floats from registers; each is two
  double pair_flops = 0;   // of pairs of bf16 where the machine has them, else as floats
  double int8_ops = 0;  // multiply-adds of int8 from registers, by VPDPBUSD or AMX if there is one
  double read_bytes = 0;  // of memory far larger than the caches

  // Of products of floats with weights or keys of this type: bf16 can always be widened, fp8 is.
  double flops(DType dtype) const;
};

// The better of both for each figure.
Rates better_of(const Rates& a, const Rates& b);
// Of two that work at the same time.
Rates sum_of(const Rates& a, const Rates& b);

}  // namespace longhaul
