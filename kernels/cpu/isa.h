// Which instruction set the CPU kernels run with. The best that the machine has unless
// set_active_isa says otherwise (the program calls it for LONGHAUL_ISA=avx2, say).
// Results of different instruction sets agree within rounding, not bit for bit (products with
// weights of integers do bit for bit).
#pragma once
#include <string_view>
#include <vector>

namespace longhaul {

enum class Isa {
  kBaseline,
  kAvx2,        // with FMA and F16C
  kAvx512,      // F, BW, DQ and VL
  kAvx512Vnni,  // and VNNI
  kAvx512Bf16,  // and BF16
  kAmx          // and AMX with bf16 and int8
};

std::string_view name_of(Isa isa);
std::vector<Isa> supported_isas();  // of this machine, ascending
Isa active_isa();
// For tests and benchmarks: overrides the choice; throws kUnsupported when the machine lacks it.
// Call while no kernel runs.
void set_active_isa(Isa isa);
// Reads what name_of writes; throws kInvalidArgument.
Isa isa_named(std::string_view name);

}  // namespace longhaul
