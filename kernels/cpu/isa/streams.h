// How a kernel best reads memory that it needs once: in one stream, or in several side by side,
// each of which goes on where it was.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// With 8 lanes four streams come faster than one: the hardware foresees each of them, and one alone
// does not keep memory busy (measured on Zen 3, docs/benchmarks/kernels_avx2.md). With 16 lanes
// one: several have not been measured.
constexpr int kStreams = kWidth == 16 ? 1 : 4;
// How far ahead each of several is asked for, for processors that stop at the ends of pages.
// Further ahead, or with one stream, asking takes more than it gives on Zen 3.
constexpr std::int64_t kStreamBytesAhead = 512;

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
