// The table of this instruction set's kernels.
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {

#define LONGHAUL_KERNEL(result, name, ...) result name(__VA_ARGS__);
#include "kernels/cpu/isa/kernels.def"

extern const Kernels kernels;
const Kernels kernels = {
#define LONGHAUL_KERNEL(result, name, ...) .name = name,
#define LONGHAUL_AMX_KERNEL(result, name, ...) .name = nullptr,
#if !defined(__AVX512BF16__)
#define LONGHAUL_PAIR_KERNEL(result, name, ...) .name = nullptr,
#endif
#include "kernels/cpu/isa/kernels.def"
};

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
