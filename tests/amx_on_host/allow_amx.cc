// In place of kernels/cpu/amx.cc: emulated AMX needs what the kernels around its instructions use.
#include "kernels/cpu/amx.h"

namespace longhaul {

bool may_use_amx() {
  return __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
}

}  // namespace longhaul
