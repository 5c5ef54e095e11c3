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

// How memory is read: n floats one behind the other, or four quarters of them side by side. n is a
// multiple of 8 vectors. Which is faster is the machine's matter.
enum class ReadOrder { kOneStream, kFourStreams };

}  // namespace longhaul::cpu
