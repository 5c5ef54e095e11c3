// The table of kernels for machines with AMX.
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {

#define LONGHAUL_KERNEL(result, name, ...)
#define LONGHAUL_PAIR_KERNEL(result, name, ...)
#define LONGHAUL_AMX_KERNEL(result, name, ...) result name(__VA_ARGS__);
#define LONGHAUL_KERNEL_AND_AMX LONGHAUL_AMX_KERNEL
#include "kernels/cpu/isa/kernels.def"

// `others` where AMX has no kernel of its own.
Kernels with_amx(const Kernels& others);
Kernels with_amx(const Kernels& others) {
  Kernels out = others;
#define LONGHAUL_KERNEL(result, name, ...)
#define LONGHAUL_PAIR_KERNEL(result, name, ...)
#define LONGHAUL_AMX_KERNEL(result, name, ...) out.name = name;
#define LONGHAUL_KERNEL_AND_AMX LONGHAUL_AMX_KERNEL
#include "kernels/cpu/isa/kernels.def"
  return out;
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
