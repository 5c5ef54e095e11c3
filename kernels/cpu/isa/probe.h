// Loops that measure what one thread of the machine can attain, for benchmarks. See
// kernels/cpu/isa/kernels.h.
#pragma once
#include <cstdint>

namespace longhaul::cpu {

// Work done, and a value that depends on all of it, so that no compiler leaves it out.
struct ProbeResult {
  std::int64_t amount;  // operations (a multiply-add is two) or bytes
  float value;
};

}  // namespace longhaul::cpu
