// Which instruction set the CPU kernels run with. The best that the machine has unless
// set_active_isa says otherwise (the program calls it for LONGHAUL_ISA=baseline|avx2|avx512).
// Results of different instruction sets agree within rounding, not bit for bit.
#pragma once
#include <string_view>
#include <vector>

namespace longhaul {

enum class Isa { kBaseline, kAvx2, kAvx512 };  // kAvx512 means F, BW, DQ, VL and BF16

std::string_view name_of(Isa isa);
std::vector<Isa> supported_isas();  // of this machine, ascending
Isa active_isa();
// For tests and benchmarks: overrides the choice; throws kUnsupported when the machine lacks it.
// Call while no kernel runs.
void set_active_isa(Isa isa);
// Reads "baseline", "avx2" or "avx512"; throws kInvalidArgument.
Isa isa_named(std::string_view name);

// Threads that kernels called from this thread use; 0 restores the default (OMP_NUM_THREADS, else
// the cores this process may use).
void set_kernel_threads(int n_threads);
int kernel_threads();

}  // namespace longhaul
